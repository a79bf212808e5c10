//===- Conv.cpp - convolution and its two gradients -----------------------===//
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec::nn;

using Grads = SmallVectorImpl<Value>;

LogicalResult
ConvOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                         ValueRange operands, DictionaryAttr attributes,
                         mlir::OpaqueProperties properties, RegionRange,
                         SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties);
  auto x = tensorType(op.getX()), w = tensorType(op.getW());
  size_t spatial = x.getRank() - 2;
  if (x.getRank() < 3 || w.getRank() != x.getRank() ||
      op.getStrides().size() != spatial ||
      op.getDilations().size() != spatial ||
      op.getPadsLow().size() != spatial || op.getPadsHigh().size() != spatial)
    return emitOptionalError(loc, "needs operands of equal rank and one "
                                  "attribute entry a spatial dimension");
  int64_t groups = op.getGroups();
  if (groups < 1 || x.getDimSize(1) != w.getDimSize(1) * groups ||
      w.getDimSize(0) % groups != 0)
    return emitOptionalError(loc, "channels of ", x, " and ", w,
                             " do not fit in ", groups, " groups");
  SmallVector<int64_t> shape{x.getDimSize(0), w.getDimSize(0)};
  for (size_t i = 0; i < spatial; ++i) {
    int64_t window = (w.getDimSize(i + 2) - 1) * op.getDilations()[i] + 1;
    int64_t room =
        x.getDimSize(i + 2) + op.getPadsLow()[i] + op.getPadsHigh()[i] - window;
    if (op.getStrides()[i] < 1 || room < 0)
      return emitOptionalError(loc, "window is larger than the padded input");
    shape.push_back(room / op.getStrides()[i] + 1);
  }
  types.push_back(x.clone(shape));
  return success();
}

LogicalResult ConvOp::verify() {
  if (!isFloat(getX()) || tensorType(getX()).getElementType() !=
                              tensorType(getW()).getElementType())
    return emitOpError("needs floating-point operands of one type");
  return success();
}

/// 2 * output elements * multiply-adds of one output.
static int64_t convFlops(Value y, Value w) {
  auto type = tensorType(w);
  return 2 * tensorType(y).getNumElements() *
         (type.getNumElements() / std::max<int64_t>(1, type.getDimSize(0)));
}

int64_t ConvOp::flops() { return convFlops(getY(), getW()); }
int64_t ConvGradInputOp::flops() { return convFlops(getDy(), getW()); }
int64_t ConvGradWeightOp::flops() { return convFlops(getDy(), getDw()); }
bool ConvOp::isContraction() { return true; }
bool ConvGradInputOp::isContraction() { return true; }
bool ConvGradWeightOp::isContraction() { return true; }

void ConvOp::backward(NNBuilder &b, ValueRange grads,
                      const llvm::BitVector &needed, Grads &out) {
  if (needed[0])
    out[0] = ConvGradInputOp::create(b, getX().getType(), grads[0], getW(),
                                     getStrides(), getDilations(), getPadsLow(),
                                     getPadsHigh(), getGroups());
  if (needed[1])
    out[1] = ConvGradWeightOp::create(b, getW().getType(), getX(), grads[0],
                                      getStrides(), getDilations(),
                                      getPadsLow(), getPadsHigh(), getGroups());
}

void ConvGradInputOp::backward(NNBuilder &b, ValueRange grads,
                               const llvm::BitVector &needed, Grads &out) {
  // The op is linear in both operands; its adjoint is the convolution itself.
  if (needed[0])
    out[0] = ConvOp::create(b, getDy().getType(), grads[0], getW(),
                            getStrides(), getDilations(), getPadsLow(),
                            getPadsHigh(), getGroups());
  if (needed[1])
    out[1] = ConvGradWeightOp::create(b, getW().getType(), grads[0], getDy(),
                                      getStrides(), getDilations(),
                                      getPadsLow(), getPadsHigh(), getGroups());
}
