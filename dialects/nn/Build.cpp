//===- Build.cpp - short ways to write nn expressions ---------------------===//
#include "dialects/nn/Build.h"

using namespace mlir;

namespace pipec::nn {

Value splat(NNBuilder &b, RankedTensorType type, double value) {
  Type element = type.getElementType();
  Attribute attr;
  if (auto f = dyn_cast<FloatType>(element)) {
    llvm::APFloat v(value);
    bool losesInfo;
    v.convert(f.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
              &losesInfo);
    attr = FloatAttr::get(f, v);
  } else {
    attr = IntegerAttr::get(element, static_cast<int64_t>(value));
  }
  return ConstantOp::create(b, DenseElementsAttr::get(type, attr));
}
Value splatLike(NNBuilder &b, Value like, double value) {
  return splat(b, tensorType(like), value);
}

Value add(NNBuilder &b, Value x, Value y) { return AddOp::create(b, x, y); }
Value sub(NNBuilder &b, Value x, Value y) { return SubOp::create(b, x, y); }
Value mul(NNBuilder &b, Value x, Value y) { return MulOp::create(b, x, y); }
Value div(NNBuilder &b, Value x, Value y) { return DivOp::create(b, x, y); }
Value neg(NNBuilder &b, Value x) { return NegOp::create(b, x); }
Value exp(NNBuilder &b, Value x) { return ExpOp::create(b, x); }
Value log(NNBuilder &b, Value x) { return LogOp::create(b, x); }
Value mulScalar(NNBuilder &b, Value x, double s) {
  return mul(b, x, splatLike(b, x, s));
}
Value addScalar(NNBuilder &b, Value x, double s) {
  return add(b, x, splatLike(b, x, s));
}
Value compare(NNBuilder &b, llvm::StringRef predicate, Value x, Value y) {
  return CompareOp::create(b, x, y, predicate);
}
Value select(NNBuilder &b, Value condition, Value x, Value y) {
  return SelectOp::create(b, x.getType(), condition, x, y);
}
Value selectOrZero(NNBuilder &b, Value condition, Value x) {
  return select(b, condition, x, splatLike(b, x, 0));
}
Value cast(NNBuilder &b, Value x, Type elementType) {
  if (tensorType(x).getElementType() == elementType)
    return x;
  return CastOp::create(b, tensorType(x).clone(elementType), x);
}

Value reshape(NNBuilder &b, Value x, ArrayRef<int64_t> shape) {
  if (tensorType(x).getShape() == shape)
    return x;
  return ReshapeOp::create(b, tensorType(x).clone(shape), x);
}
Value broadcast(NNBuilder &b, Value x, ArrayRef<int64_t> shape) {
  if (tensorType(x).getShape() == shape)
    return x;
  return BroadcastOp::create(b, tensorType(x).clone(shape), x);
}
Value broadcastTo(NNBuilder &b, Value x, ArrayRef<int64_t> shape) {
  ArrayRef<int64_t> from = tensorType(x).getShape();
  SmallVector<int64_t> aligned(shape.size() - from.size(), 1);
  aligned.append(from.begin(), from.end());
  return broadcast(b, reshape(b, x, aligned), shape);
}
Value transpose(NNBuilder &b, Value x, ArrayRef<int64_t> permutation) {
  if (llvm::equal(permutation, llvm::seq<int64_t>(0, permutation.size())))
    return x;
  return TransposeOp::create(b, x, permutation);
}
Value slice(NNBuilder &b, Value x, ArrayRef<int64_t> starts,
            ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  return SliceOp::create(b, tensorType(x).clone(sizes), x, starts, strides);
}
Value reduce(NNBuilder &b, llvm::StringRef kind, Value x,
             ArrayRef<int64_t> axes) {
  if (axes.empty())
    return x;
  return ReduceOp::create(b, x, kind, axes);
}
Value mean(NNBuilder &b, Value x, ArrayRef<int64_t> axes) {
  int64_t count = 1;
  for (int64_t axis : axes)
    count *= tensorType(x).getDimSize(axis);
  Value sum = reduce(b, "sum", x, axes);
  return div(b, sum, splatLike(b, sum, static_cast<double>(count)));
}
Value matmul(NNBuilder &b, Value x, Value y, bool transposeX, bool transposeY) {
  return MatmulOp::create(b, x, y, transposeX, transposeY);
}
Value iota(NNBuilder &b, RankedTensorType type, int64_t axis) {
  return IotaOp::create(b, type, axis);
}

} // namespace pipec::nn
