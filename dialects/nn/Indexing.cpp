//===- Indexing.cpp - gather, scatter_add, cumsum -------------------------===//
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec::nn;

using Grads = SmallVectorImpl<Value>;

/// outer ++ indices ++ inner for a gather of `x` along `axis`.
static SmallVector<int64_t>
gatherShape(RankedTensorType x, RankedTensorType indices, int64_t axis) {
  SmallVector<int64_t> shape(x.getShape().take_front(axis));
  llvm::append_range(shape, indices.getShape());
  llvm::append_range(shape, x.getShape().drop_front(axis + 1));
  return shape;
}

LogicalResult
GatherOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                           ValueRange operands, DictionaryAttr attributes,
                           mlir::OpaqueProperties properties, RegionRange,
                           SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties);
  auto x = tensorType(op.getX());
  int64_t axis = op.getAxis();
  if (axis < 0 || axis >= x.getRank())
    return emitOptionalError(loc, "axis out of range");
  types.push_back(x.clone(gatherShape(x, tensorType(op.getIndices()), axis)));
  return success();
}

LogicalResult GatherOp::verify() {
  if (isFloat(getIndices()))
    return emitOpError("needs integer indices");
  return success();
}

void GatherOp::backward(NNBuilder &b, ValueRange grads,
                        const llvm::BitVector &needed, Grads &out) {
  if (needed[0])
    out[0] = ScatterAddOp::create(b, getX().getType(), getIndices(), grads[0],
                                  getAxis());
}

LogicalResult ScatterAddOp::verify() {
  auto y = tensorType(getY()), updates = tensorType(getUpdates());
  int64_t axis = getAxis();
  if (axis < 0 || axis >= y.getRank() || isFloat(getIndices()) ||
      updates.getElementType() != y.getElementType() ||
      updates.getShape() !=
          ArrayRef(gatherShape(y, tensorType(getIndices()), axis)))
    return emitOpError("updates do not have the shape of a gather of ") << y;
  return success();
}

void ScatterAddOp::backward(NNBuilder &b, ValueRange grads,
                            const llvm::BitVector &needed, Grads &out) {
  if (needed[1])
    out[1] = GatherOp::create(b, grads[0], getIndices(), getAxis());
}

void CumsumOp::backward(NNBuilder &b, ValueRange grads, const llvm::BitVector &,
                        Grads &out) {
  out[0] = CumsumOp::create(b, getType(), grads[0], getAxis(), getExclusive(),
                            !getReverse());
}
