//===- Linear.cpp - matrix multiplication ---------------------------------===//
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec::nn;

using Grads = SmallVectorImpl<Value>;

LogicalResult
MatmulOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                           ValueRange operands, DictionaryAttr attributes,
                           mlir::OpaqueProperties properties, RegionRange,
                           SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties);
  auto a = tensorType(op.getA()), b = tensorType(op.getB());
  int64_t rank = a.getRank();
  if (rank < 2 || b.getRank() != rank)
    return emitOptionalError(loc,
                             "needs two operands of equal rank, at least 2");
  int64_t k = a.getDimSize(op.getTransposeA() ? rank - 2 : rank - 1);
  if (k != b.getDimSize(op.getTransposeB() ? rank - 1 : rank - 2) ||
      a.getShape().drop_back(2) != b.getShape().drop_back(2))
    return emitOptionalError(loc, "cannot multiply ", a, " and ", b);
  SmallVector<int64_t> shape(a.getShape().drop_back(2));
  shape.push_back(a.getDimSize(op.getTransposeA() ? rank - 1 : rank - 2));
  shape.push_back(b.getDimSize(op.getTransposeB() ? rank - 2 : rank - 1));
  types.push_back(a.clone(shape));
  if (op.getWide())
    types.back() = a.clone(shape, Float32Type::get(a.getContext()));
  return success();
}

LogicalResult MatmulOp::verify() {
  if (!isFloat(getA()) || tensorType(getA()).getElementType() !=
                              tensorType(getB()).getElementType())
    return emitOpError("needs floating-point operands of one type");
  if (getWide() && !isNarrow(getA()))
    return emitOpError("is wide without narrow operands");
  return success();
}

int64_t MatmulOp::flops() {
  auto a = tensorType(getA());
  int64_t k = a.getDimSize(a.getRank() - (getTransposeA() ? 2 : 1));
  return 2 * k * tensorType(getY()).getNumElements();
}
bool MatmulOp::isContraction() { return true; }

void MatmulOp::backward(NNBuilder &b, ValueRange grads,
                        const llvm::BitVector &needed, Grads &out) {
  Value p = getA(), q = getB();
  Value d = nn::cast(b, grads[0], tensorType(p).getElementType());
  bool tp = getTransposeA(), tq = getTransposeB();
  if (needed[0])
    out[0] = tp ? matmul(b, q, d, tq, true) : matmul(b, d, q, false, !tq);
  if (needed[1])
    out[1] = tq ? matmul(b, d, p, true, tp) : matmul(b, p, d, !tp, false);
}
