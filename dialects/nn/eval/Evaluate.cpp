//===- Evaluate.cpp - nn ops and functions on literals --------------------===//
#include "dialects/nn/eval/Kernels.h"
#include "llvm/ADT/DenseMap.h"
#include <limits>

using namespace mlir;

namespace pipec::nn {

Literal eval::Context::floats(RankedTensorType type,
                              std::vector<double> values) const {
  if (options.round && !type.getElementType().isF64())
    for (double &v : values)
      v = roundTo(type.getElementType(), v);
  return Literal(type, std::move(values));
}

FailureOr<SmallVector<Literal>> evaluate(Operation *op,
                                         ArrayRef<Literal> operands,
                                         const EvaluateOptions &options,
                                         std::string &why) {
  const eval::Context context{operands, options, why};
  for (auto family :
       {eval::elementwise, eval::shape, eval::indexing, eval::reduction,
        eval::contraction, eval::attention, eval::pooling}) {
    FailureOr<eval::Results> results = family(op, context);
    if (failed(results) || !results->empty())
      return results;
  }
  why = "'" + op->getName().getStringRef().str() + "' has no evaluation";
  return failure();
}

/// Elements of the result along whose dimensions some operand varies, for ops
/// whose operands and result have the same dimensions but for `except`.
static int64_t variedElements(Operation *op, ArrayRef<Literal> operands,
                              int64_t except = -1) {
  const RankedTensorType type = eval::resultType(op);
  int64_t n = 1;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (d == except || llvm::any_of(operands, [&](const Literal &x) {
          return x.getStrides()[d] != 0;
        }))
      n *= type.getDimSize(d);
  return n;
}

int64_t evaluationWork(Operation *op, ArrayRef<Literal> operands) {
  if (isa<ConstantOp, BroadcastOp, TransposeOp, SliceOp, ReverseOp>(op))
    return 0;
  if (isa<IotaOp>(op)) {
    auto iota = cast<IotaOp>(op);
    return eval::resultType(op).getDimSize(iota.getAxis());
  }
  if (isa<ReshapeOp>(op))
    return operands[0].canReshapeAsView(eval::resultType(op).getShape())
               ? 0
               : operands[0].getNumElements();
  if (op->hasTrait<Elementwise>())
    return variedElements(op, operands);
  if (auto concat = dyn_cast<ConcatOp>(op))
    return variedElements(op, operands, concat.getAxis());
  if (auto gather = dyn_cast<GatherOp>(op)) {
    // Dimensions of x beside the axis, times those of the indices.
    int64_t n = operands[1].getStoredElements();
    for (int64_t d = 0; d < operands[0].getRank(); ++d)
      if (d != static_cast<int64_t>(gather.getAxis()) &&
          operands[0].getStrides()[d] != 0)
        n *= operands[0].getShape()[d];
    return n;
  }
  int64_t n = 0;
  if (auto pool = op->getAttrOfType<DenseI64ArrayAttr>("kernel")) {
    n = eval::resultType(op).getNumElements();
    for (const int64_t size : pool.asArrayRef())
      if (__builtin_mul_overflow(n, size, &n))
        return std::numeric_limits<int64_t>::max();
  }
  for (const Literal &x : operands)
    n += x.getNumElements();
  for (Type type : op->getResultTypes())
    n += cast<RankedTensorType>(type).getNumElements();
  if (auto costed = dyn_cast<Costed>(op); costed && costed.isContraction())
    n += costed.flops() / 2;
  return n;
}

FailureOr<FunctionResult>
evaluate(func::FuncOp function, ArrayRef<Literal> inputs,
         const std::function<Literal(StringRef)> &parameters,
         const EvaluateOptions &options, std::string &why) {
  llvm::DenseMap<Value, Literal> values;
  for (auto [argument, literal] :
       llvm::zip_equal(function.getArguments(), inputs))
    values[argument] = literal;
  FunctionResult result;
  for (Operation &op : function.getBody().front()) {
    SmallVector<Literal> operands;
    for (Value operand : op.getOperands())
      operands.push_back(values.lookup(operand));
    if (isa<func::ReturnOp>(op)) {
      result.outputs = operands;
    } else if (auto weight = dyn_cast<WeightOp>(op)) {
      values[weight.getY()] = parameters(weight.getParameter());
    } else if (auto track = dyn_cast<TrackOp>(op)) {
      result.tracked.emplace_back(track.getParameter().str(), operands[0]);
    } else {
      FailureOr<SmallVector<Literal>> results =
          evaluate(&op, operands, options, why);
      if (failed(results))
        return failure();
      for (auto [value, literal] : llvm::zip_equal(op.getResults(), *results))
        values[value] = literal;
    }
  }
  return result;
}

} // namespace pipec::nn
