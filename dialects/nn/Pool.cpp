//===- Pool.cpp - max and average pooling ---------------------------------===//
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec::nn;

using Grads = SmallVectorImpl<Value>;

void MaxPoolOp::backward(NNBuilder &b, ValueRange grads,
                         const llvm::BitVector &, Grads &out) {
  if (grads[0])
    out[0] = MaxPoolGradOp::create(b, getX().getType(), grads[0], getIndex(),
                                   getKernel(), getStrides(), getDilations(),
                                   getPadsLow(), getPadsHigh());
}

void AvgPoolOp::backward(NNBuilder &b, ValueRange grads,
                         const llvm::BitVector &, Grads &out) {
  out[0] = AvgPoolGradOp::create(b, getX().getType(), grads[0], getKernel(),
                                 getStrides(), getDilations(), getPadsLow(),
                                 getPadsHigh(), getCountPad());
}
