//===- Attention.cpp - attention as one op --------------------------------===//
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec::nn;

using Grads = SmallVectorImpl<Value>;

/// Of scores, statistics and biases: f64 is there to check gradients.
static Type wideType(RankedTensorType q) {
  return q.getElementType().isF64() ? q.getElementType()
                                    : Float32Type::get(q.getContext());
}

LogicalResult
AttentionOp::inferReturnTypes(MLIRContext *context, std::optional<Location>,
                              ValueRange operands, DictionaryAttr attributes,
                              mlir::OpaqueProperties properties, RegionRange,
                              SmallVectorImpl<Type> &types) {
  auto q = tensorType(Adaptor(operands, attributes, properties).getQ());
  SmallVector<int64_t> rows(q.getShape());
  rows.back() = 1;
  types.push_back(q);
  types.append(2, q.clone(rows, wideType(q)));
  return success();
}

LogicalResult AttentionOp::verify() {
  auto q = tensorType(getQ()), k = tensorType(getK());
  const int64_t rank = q.getRank();
  if (rank < 2 || k != tensorType(getV()) || k.getRank() != rank ||
      q.getElementType() != k.getElementType() ||
      !(q.getElementType() == wideType(q) || isNarrow(getQ())) ||
      q.getShape().drop_back(2) != k.getShape().drop_back(2) ||
      q.getShape().back() != k.getShape().back())
    return emitOpError("cannot attend with ")
           << q << " to " << k << " and " << getV().getType();
  if (getCausal() && q != k)
    return emitOpError("is causal over different positions");
  if (!getBias() && getReplaces())
    return emitOpError("replaces scores by a bias that it has not");
  if (!getBias())
    return success();
  SmallVector<int64_t> scores(q.getShape());
  scores.back() = k.getDimSize(rank - 2);
  auto wanted = q.clone(scores, wideType(q));
  if (getBias().getType() != wanted)
    return emitOpError("expected a bias of ")
           << wanted << ", got " << getBias().getType();
  return success();
}

/// Operations of `products` products of the scores' size.
template <typename Op> static int64_t flopsOf(Op op, int64_t products) {
  auto q = tensorType(op.getQ()), k = tensorType(op.getK());
  const int64_t all =
      2 * products * q.getNumElements() * k.getDimSize(k.getRank() - 2);
  return op.getCausal() ? all / 2 : all;
}

int64_t AttentionOp::flops() { return flopsOf(*this, 2); }
bool AttentionOp::isContraction() { return true; }
int64_t AttentionGradQueryOp::flops() { return flopsOf(*this, 3); }
bool AttentionGradQueryOp::isContraction() { return true; }
int64_t AttentionGradKeysOp::flops() { return flopsOf(*this, 4); }
bool AttentionGradKeysOp::isContraction() { return true; }

/// With p = exp(scores - tops) * shares: dv = p' dy, ds = p * (dy v' - delta),
/// dq = scale * ds k, dk = scale * ds' q.
void AttentionOp::backward(NNBuilder &b, ValueRange grads,
                           const llvm::BitVector &needed, Grads &out) {
  if (!grads[0])
    return;
  Value dy = nn::cast(b, grads[0], tensorType(getY()).getElementType());
  Type real = wideType(tensorType(getQ()));
  Value delta =
      reduce(b, "sum", mul(b, nn::cast(b, dy, real), nn::cast(b, getY(), real)),
             {tensorType(dy).getRank() - 1});
  if (needed[0])
    out[0] = AttentionGradQueryOp::create(
        b, getQ().getType(), getQ(), getK(), getV(), dy, getTops(), getShares(),
        delta, getBias(), getScaleAttr(), getCausalAttr(), getZeroRowsAttr(),
        getReplacesAttr());
  if (!needed[1] && !needed[2])
    return;
  auto keys = AttentionGradKeysOp::create(
      b, getK().getType(), getV().getType(), getQ(), getK(), getV(), dy,
      getTops(), getShares(), delta, getBias(), getScaleAttr(), getCausalAttr(),
      getZeroRowsAttr(), getReplacesAttr());
  out[1] = keys.getDk();
  out[2] = keys.getDv();
}
