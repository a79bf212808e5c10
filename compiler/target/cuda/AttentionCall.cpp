//===- AttentionCall.cpp - attention that a library may compute -----------===//
#include "compiler/target/cuda/AttentionCall.h"
#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;
using nn::tensorType;

constexpr int64_t kMostSize = 128, kAligned = 8; ///< elements

namespace {
class CallMaker {
public:
  CallMaker(const TaskPlan &plan, const Unit &unit) : plan(plan), unit(unit) {}

  std::optional<AttentionCall> run() {
    if (auto forward = dyn_cast<nn::AttentionOp>(unit.op)) {
      if (!describe(forward))
        return std::nullopt;
      set(PIPEC_ATTENTION_Y, forward.getY(), placeOf(unit, forward.getY()));
      setRows(PIPEC_ATTENTION_TOPS, placeOf(unit, forward.getTops()));
      setRows(PIPEC_ATTENTION_SHARES, placeOf(unit, forward.getShares()));
    } else if (unit.attention.queries >= 0) {
      auto keys = cast<nn::AttentionGradKeysOp>(unit.op);
      if (!describe(keys))
        return std::nullopt;
      describeGradient(keys);
    } else {
      return std::nullopt;
    }
    // Of gradients: row sums, that of queries, and that of keys.
    call.shape.calls = call.shape.gradient ? 3 : 1;
    return fits ? std::optional(call) : std::nullopt;
  }

private:
  Placement placeOf(const Unit &of, Value value) const {
    for (auto [operand, at] : llvm::zip(of.op->getOperands(), of.operands))
      if (operand == value)
        return at;
    const size_t first = of.op->getNumOperands();
    for (auto [i, result] : llvm::enumerate(of.op->getResults()))
      if (result == value)
        return of.operands[first + i];
    return {};
  }

  /// Sizes and operands that all have.
  template <typename Op> bool describe(Op op) {
    auto type = tensorType(op.getQ());
    const int64_t rank = type.getRank();
    if (!type.getElementType().isBF16() || op.getBias() || op.getZeroRows() ||
        op.getReplaces() || rank < 3 || rank > 4 ||
        type.getNumElements() == 0 ||
        tensorType(op.getK()).getNumElements() == 0)
      return false;
    PipecAttention &shape = call.shape;
    shape.batch = type.getDimSize(0);
    shape.heads = rank == 4 ? type.getDimSize(1) : 1;
    shape.queries = type.getDimSize(rank - 2);
    shape.size = type.getDimSize(rank - 1);
    shape.keys = tensorType(op.getK()).getDimSize(rank - 2);
    shape.scale = op.getScale().convertToDouble();
    shape.causal = op.getCausal();
    if (shape.size > kMostSize || shape.size % kAligned)
      return false;
    set(PIPEC_ATTENTION_Q, op.getQ(), placeOf(unit, op.getQ()));
    set(PIPEC_ATTENTION_K, op.getK(), placeOf(unit, op.getK()));
    set(PIPEC_ATTENTION_V, op.getV(), placeOf(unit, op.getV()));
    return true;
  }

  void describeGradient(nn::AttentionGradKeysOp keys) {
    const Unit &queries = plan.units[unit.attention.queries];
    call.shape.gradient = 1;
    setRows(PIPEC_ATTENTION_TOPS, placeOf(unit, keys.getTops()));
    set(PIPEC_ATTENTION_DY, keys.getDy(), placeOf(unit, keys.getDy()));
    set(PIPEC_ATTENTION_Y, keys.getDy(), unit.attention.y);
    set(PIPEC_ATTENTION_DQ, keys.getQ(),
        placeOf(queries, queries.op->getResult(0)));
    set(PIPEC_ATTENTION_DK, keys.getK(), placeOf(unit, keys.getDk()));
    set(PIPEC_ATTENTION_DV, keys.getV(), placeOf(unit, keys.getDv()));
  }

  bool isAligned(const Placement &at, int64_t bytes) const {
    return (plan.buffers[at.buffer].offset + at.offset * bytes) %
               (kAligned * 2) ==
           0;
  }

  /// A tensor like `value`.
  void set(PipecAttentionTensor which, Value value, const Placement &at) {
    auto type = tensorType(value);
    const int64_t rank = type.getRank();
    if (at.buffer < 0 || static_cast<int64_t>(at.strides.size()) != rank ||
        at.strides.back() != 1 || !isAligned(at, 2)) {
      fits = false;
      return;
    }
    int64_t *step = call.shape.stride[which];
    step[0] = at.strides[0];
    step[1] = rank == 4 ? at.strides[1] : type.getDimSize(1) * at.strides[1];
    step[2] = at.strides[rank - 2];
    for (int i = 0; i < 3; ++i)
      fits &= step[i] > 0 && step[i] % kAligned == 0;
    call.places[which] = at;
  }

  /// One number a row, dense; may be left out.
  void setRows(PipecAttentionTensor which, const Placement &at) {
    if (at.buffer < 0)
      return;
    const PipecAttention &shape = call.shape;
    const SmallVector<int64_t> dense =
        denseStrides({shape.batch, shape.heads, shape.queries});
    SmallVector<int64_t> steps(ArrayRef(at.strides).drop_back());
    if (steps.size() == 2)
      steps.insert(steps.begin() + 1, dense[1]);
    const int64_t sizes[] = {shape.batch, shape.heads, shape.queries};
    for (int i = 0; i < 3; ++i)
      fits &= sizes[i] == 1 || steps[i] == dense[i];
    fits &= isAligned(at, sizeof(float));
    call.places[which] = at;
  }

  const TaskPlan &plan;
  const Unit &unit;
  AttentionCall call;
  bool fits = true;
};
} // namespace

std::optional<std::pair<int, int64_t>>
AttentionCall::topsInRegion(ArrayRef<Buffer> buffers) const {
  const Placement &at = places[PIPEC_ATTENTION_TOPS];
  if (at.buffer < 0 || buffers[at.buffer].kind != Buffer::Region)
    return std::nullopt;
  const Buffer &buffer = buffers[at.buffer];
  return std::pair(buffer.region,
                   buffer.offset +
                       at.offset * static_cast<int64_t>(sizeof(float)));
}

std::optional<AttentionCall> cuda::attentionCall(const TaskPlan &plan,
                                                 const Unit &unit) {
  return CallMaker(plan, unit).run();
}
