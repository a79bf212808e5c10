//===- Reduce.cpp - reductions and softmax --------------------------------===//
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec::nn;

using Grads = SmallVectorImpl<Value>;

LogicalResult
ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                           ValueRange operands, DictionaryAttr attributes,
                           mlir::OpaqueProperties properties, RegionRange,
                           SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties);
  auto x = tensorType(op.getX());
  SmallVector<int64_t> shape(x.getShape());
  for (int64_t axis : op.getAxes()) {
    if (axis < 0 || axis >= x.getRank())
      return emitOptionalError(loc, "axis out of range");
    shape[axis] = 1;
  }
  types.push_back(x.clone(shape));
  return success();
}

LogicalResult ReduceOp::verify() {
  if (!llvm::is_contained({"sum", "max", "min", "prod"}, getKind()))
    return emitOpError("has an unknown kind '") << getKind() << "'";
  if (!llvm::is_sorted(getAxes()) ||
      std::adjacent_find(getAxes().begin(), getAxes().end()) != getAxes().end())
    return emitOpError("needs ascending axes");
  return success();
}

/// dy where x attains the extreme, shared evenly among ties (PyTorch's amax).
static Value extremeGradient(NNBuilder &b, ReduceOp op, Value d) {
  ArrayRef<int64_t> shape = tensorType(op.getX()).getShape();
  Value hit = compare(b, "eq", op.getX(), broadcast(b, op.getY(), shape));
  Value ones = selectOrZero(b, hit, splatLike(b, op.getX(), 1));
  Value share = div(b, d, reduce(b, "sum", ones, op.getAxes()));
  return selectOrZero(b, hit, broadcast(b, share, shape));
}

/// dy times the product of the other elements, right also where elements are
/// zero: with one zero only that element has a gradient, with more none has.
static Value productGradient(NNBuilder &b, ReduceOp op, Value d) {
  auto type = tensorType(op.getX());
  Value zero = compare(b, "eq", op.getX(), splatLike(b, op.getX(), 0));
  Value zeros =
      reduce(b, "sum", selectOrZero(b, zero, splatLike(b, op.getX(), 1)),
             op.getAxes());
  Value others = select(b, zero, splatLike(b, op.getX(), 1), op.getX());
  Value product =
      broadcast(b, reduce(b, "prod", others, op.getAxes()), type.getShape());
  Value count = broadcast(b, zeros, type.getShape());
  // No zero: product / x. One zero: the product of the rest, at the zero only.
  Value whole = div(b, product, others);
  Value atZero = selectOrZero(
      b,
      AndOp::create(b, zero, compare(b, "eq", count, splatLike(b, count, 1))),
      product);
  Value partial =
      select(b, compare(b, "eq", count, splatLike(b, count, 0)), whole, atZero);
  return mul(b, broadcast(b, d, type.getShape()), partial);
}

void ReduceOp::backward(NNBuilder &b, ValueRange grads, const llvm::BitVector &,
                        Grads &out) {
  ArrayRef<int64_t> shape = tensorType(getX()).getShape();
  if (getKind() == "sum")
    out[0] = broadcast(b, grads[0], shape);
  else if (getKind() == "prod")
    out[0] = productGradient(b, *this, grads[0]);
  else
    out[0] = extremeGradient(b, *this, grads[0]);
}

/// dx = y * (dy - sum(dy * y)).
/// A row without any score is NaN, and models that know it put zeros there
/// (IsNaN and Where after the softmax). Then its gradient must be zero as well:
/// the incoming one is, but 0 * NaN is not.
static Value withoutNan(NNBuilder &b, Value y) {
  if (llvm::none_of(y.getUsers(),
                    [](Operation *op) { return isa<IsNanOp>(op); }))
    return y;
  return select(b, IsNanOp::create(b, y), splatLike(b, y, 0), y);
}

void SoftmaxOp::backward(NNBuilder &b, ValueRange grads,
                         const llvm::BitVector &, Grads &out) {
  auto type = tensorType(getY());
  Value y = withoutNan(b, getY());
  Value weighted = mul(b, grads[0], y);
  Value sum = reduce(b, "sum", weighted, {type.getRank() - 1});
  Value centred = sub(b, grads[0], broadcast(b, sum, type.getShape()));
  out[0] = mul(b, y, centred);
}
