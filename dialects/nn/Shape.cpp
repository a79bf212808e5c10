//===- Shape.cpp - broadcast, reshape, transpose, slice, pad, concat ------===//
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec::nn;

using Grads = SmallVectorImpl<Value>;

//===----------------------------------------------------------------------===//
// broadcast
//===----------------------------------------------------------------------===//

LogicalResult BroadcastOp::verify() {
  auto from = tensorType(getX()), to = tensorType(getY());
  bool ok = from.getRank() == to.getRank() &&
            from.getElementType() == to.getElementType();
  for (int64_t i = 0; ok && i < from.getRank(); ++i)
    ok = from.getDimSize(i) == 1 || from.getDimSize(i) == to.getDimSize(i);
  return ok ? success() : emitOpError("cannot repeat ") << from << " to " << to;
}

void BroadcastOp::backward(NNBuilder &b, ValueRange grads,
                           const llvm::BitVector &, Grads &out) {
  auto from = tensorType(getX()), to = tensorType(getY());
  SmallVector<int64_t> axes;
  for (int64_t i = 0; i < from.getRank(); ++i)
    if (from.getDimSize(i) != to.getDimSize(i))
      axes.push_back(i);
  out[0] = reduce(b, "sum", grads[0], axes);
}

//===----------------------------------------------------------------------===//
// reshape
//===----------------------------------------------------------------------===//

LogicalResult ReshapeOp::verify() {
  auto from = tensorType(getX()), to = tensorType(getY());
  if (from.getNumElements() != to.getNumElements() ||
      from.getElementType() != to.getElementType())
    return emitOpError("cannot turn ") << from << " into " << to;
  return success();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  if (auto inner = getX().getDefiningOp<ReshapeOp>()) {
    getXMutable().assign(inner.getX());
    return getY();
  }
  return {};
}

void ReshapeOp::backward(NNBuilder &b, ValueRange grads,
                         const llvm::BitVector &, Grads &out) {
  out[0] = reshape(b, grads[0], tensorType(getX()).getShape());
}

//===----------------------------------------------------------------------===//
// transpose
//===----------------------------------------------------------------------===//

LogicalResult
TransposeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                              ValueRange operands, DictionaryAttr attributes,
                              mlir::OpaqueProperties properties, RegionRange,
                              SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties);
  auto x = tensorType(op.getX());
  if (static_cast<int64_t>(op.getPermutation().size()) != x.getRank())
    return emitOptionalError(loc, "permutation of another rank than x");
  SmallVector<int64_t> shape;
  for (int64_t axis : op.getPermutation()) {
    if (axis < 0 || axis >= x.getRank())
      return emitOptionalError(loc, "permutation out of range");
    shape.push_back(x.getDimSize(axis));
  }
  types.push_back(x.clone(shape));
  return success();
}

LogicalResult TransposeOp::verify() {
  llvm::SmallBitVector seen(getPermutation().size());
  for (int64_t axis : getPermutation()) {
    if (axis < 0 || axis >= static_cast<int64_t>(seen.size()))
      return emitOpError("permutation out of range");
    if (seen[axis])
      return emitOpError("repeats a dimension in its permutation");
    seen.set(axis);
  }
  return success();
}

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  ArrayRef<int64_t> permutation = getPermutation();
  if (llvm::equal(permutation, llvm::seq<int64_t>(0, permutation.size())))
    return getX();
  if (auto inner = getX().getDefiningOp<TransposeOp>()) {
    SmallVector<int64_t> composed;
    for (int64_t axis : permutation)
      composed.push_back(inner.getPermutation()[axis]);
    setPermutation(composed);
    getXMutable().assign(inner.getX());
    return getY();
  }
  return {};
}

void TransposeOp::backward(NNBuilder &b, ValueRange grads,
                           const llvm::BitVector &, Grads &out) {
  SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [i, axis] : llvm::enumerate(getPermutation()))
    inverse[axis] = i;
  out[0] = transpose(b, grads[0], inverse);
}

//===----------------------------------------------------------------------===//
// slice and pad: each the gradient of the other
//===----------------------------------------------------------------------===//

LogicalResult SliceOp::verify() {
  auto from = tensorType(getX()), to = tensorType(getY());
  int64_t rank = from.getRank();
  if (to.getRank() != rank || (int64_t)getStarts().size() != rank ||
      (int64_t)getStrides().size() != rank ||
      from.getElementType() != to.getElementType())
    return emitOpError("needs one start and stride a dimension");
  for (int64_t i = 0; i < rank; ++i) {
    if (to.getDimSize(i) == 0)
      continue;
    int64_t first = getStarts()[i];
    int64_t last = first + (to.getDimSize(i) - 1) * getStrides()[i];
    if (getStrides()[i] == 0 || first < 0 || last < 0 ||
        first >= from.getDimSize(i) || last >= from.getDimSize(i))
      return emitOpError("leaves dimension ") << i << " of " << from;
  }
  return success();
}

void SliceOp::backward(NNBuilder &b, ValueRange grads, const llvm::BitVector &,
                       Grads &out) {
  auto from = tensorType(getX()), to = tensorType(getY());
  SmallVector<int64_t> low, high, interior, reversed;
  for (int64_t i = 0; i < from.getRank(); ++i) {
    int64_t size = to.getDimSize(i), start = getStarts()[i],
            stride = getStrides()[i];
    if (size == 0) {
      low.push_back(from.getDimSize(i));
      high.push_back(0);
      interior.push_back(0);
      continue;
    }
    int64_t last = start + (size - 1) * stride;
    if (stride < 0 && size > 1)
      reversed.push_back(i);
    low.push_back(std::min(start, last));
    high.push_back(from.getDimSize(i) - 1 - std::max(start, last));
    interior.push_back(size > 1 ? std::abs(stride) - 1 : 0);
  }
  Value d = grads[0];
  if (!reversed.empty())
    d = ReverseOp::create(b, d, reversed);
  out[0] = PadOp::create(b, d, low, high, interior, llvm::APFloat(0.0));
}

LogicalResult
PadOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                        ValueRange operands, DictionaryAttr attributes,
                        mlir::OpaqueProperties properties, RegionRange,
                        SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties);
  auto x = tensorType(op.getX());
  size_t rank = x.getRank();
  if (op.getLow().size() != rank || op.getHigh().size() != rank ||
      op.getInterior().size() != rank)
    return emitOptionalError(loc, "needs three amounts a dimension");
  SmallVector<int64_t> shape;
  for (size_t i = 0; i < rank; ++i) {
    int64_t size = x.getDimSize(i);
    shape.push_back(size + op.getLow()[i] + op.getHigh()[i] +
                    std::max<int64_t>(0, size - 1) * op.getInterior()[i]);
  }
  types.push_back(x.clone(shape));
  return success();
}

LogicalResult PadOp::verify() {
  for (ArrayRef<int64_t> amounts : {getLow(), getHigh(), getInterior()})
    if (llvm::any_of(amounts, [](int64_t n) { return n < 0; }))
      return emitOpError("has a negative amount");
  return success();
}

void PadOp::backward(NNBuilder &b, ValueRange grads, const llvm::BitVector &,
                     Grads &out) {
  SmallVector<int64_t> strides;
  for (int64_t n : getInterior())
    strides.push_back(n + 1);
  out[0] = slice(b, grads[0], getLow(), tensorType(getX()).getShape(), strides);
}

//===----------------------------------------------------------------------===//
// reverse and concat
//===----------------------------------------------------------------------===//

LogicalResult ReverseOp::inferReturnTypes(MLIRContext *,
                                          std::optional<Location>,
                                          ValueRange operands, DictionaryAttr,
                                          mlir::OpaqueProperties, RegionRange,
                                          SmallVectorImpl<Type> &types) {
  types.push_back(operands[0].getType());
  return success();
}

void ReverseOp::backward(NNBuilder &b, ValueRange grads,
                         const llvm::BitVector &, Grads &out) {
  out[0] = ReverseOp::create(b, grads[0], getAxes());
}

LogicalResult
ConcatOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                           ValueRange operands, DictionaryAttr attributes,
                           mlir::OpaqueProperties properties, RegionRange,
                           SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties);
  if (operands.empty())
    return emitOptionalError(loc, "needs an input");
  auto first = tensorType(operands[0]);
  if (static_cast<int64_t>(op.getAxis()) < 0 ||
      static_cast<int64_t>(op.getAxis()) >= first.getRank())
    return emitOptionalError(loc, "axis out of range");
  SmallVector<int64_t> shape(first.getShape());
  for (Value v : operands.drop_front())
    if (tensorType(v).getRank() == first.getRank())
      shape[op.getAxis()] += tensorType(v).getDimSize(op.getAxis());
  types.push_back(first.clone(shape));
  return success();
}

LogicalResult ConcatOp::verify() {
  auto to = tensorType(getY());
  for (Value v : getInputs()) {
    auto from = tensorType(v);
    if (from.getRank() != to.getRank() ||
        from.getElementType() != to.getElementType())
      return emitOpError("joins tensors of different rank or type");
    for (int64_t i = 0; i < to.getRank(); ++i)
      if (i != static_cast<int64_t>(getAxis()) &&
          from.getDimSize(i) != to.getDimSize(i))
        return emitOpError("joins tensors of different shape");
  }
  return success();
}

void ConcatOp::backward(NNBuilder &b, ValueRange grads,
                        const llvm::BitVector &needed, Grads &out) {
  int64_t rank = tensorType(getY()).getRank();
  SmallVector<int64_t> starts(rank, 0), strides(rank, 1);
  for (auto [i, v] : llvm::enumerate(getInputs())) {
    if (needed[i])
      out[i] = slice(b, grads[0], starts, tensorType(v).getShape(), strides);
    starts[getAxis()] += tensorType(v).getDimSize(getAxis());
  }
}
