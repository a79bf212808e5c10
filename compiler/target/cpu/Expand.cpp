//===- Expand.cpp - composed ops in terms of simpler ones -----------------===//
#include "compiler/target/cpu/Expand.h"
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec;

/// exp(x - max) times 1/sum: a division a row instead of one an element.
static Value expand(nn::NNBuilder &b, nn::SoftmaxOp op) {
  auto type = nn::tensorType(op.getX());
  int64_t last = type.getRank() - 1;
  auto spread = [&](Value row) {
    return nn::broadcast(b, row, type.getShape());
  };
  Value centred =
      nn::sub(b, op.getX(), spread(nn::reduce(b, "max", op.getX(), {last})));
  Value e = nn::exp(b, centred);
  Value sum = nn::reduce(b, "sum", e, {last});
  return nn::mul(b, e, spread(nn::ReciprocalOp::create(b, sum)));
}

/// Running sums by doubling: after step k each element is the sum of up to 2^k.
static Value expand(nn::NNBuilder &b, nn::CumsumOp op) {
  auto type = nn::tensorType(op.getX());
  int64_t axis = op.getAxis(), size = type.getDimSize(axis);
  SmallVector<int64_t> zeros(type.getRank(), 0), ones(type.getRank(), 1);
  auto flip = [&](Value x) -> Value {
    return op.getReverse() ? nn::ReverseOp::create(b, x, ArrayRef(axis)) : x;
  };
  // y[i] = x[i - by], zero where i < by.
  auto shifted = [&](Value x, int64_t by) -> Value {
    SmallVector<int64_t> low = zeros;
    low[axis] = by;
    Value padded = nn::PadOp::create(b, x, low, zeros, zeros, APFloat(0.0));
    return nn::slice(b, padded, zeros, type.getShape(), ones);
  };
  Value sum = flip(op.getX());
  if (op.getExclusive())
    sum = shifted(sum, 1);
  for (int64_t by = 1; by < size; by *= 2)
    sum = nn::add(b, sum, shifted(sum, by));
  return flip(sum);
}

void cpu::expandComposedOps(func::FuncOp func) {
  for (Operation &op : llvm::make_early_inc_range(func.getBody().front())) {
    nn::NNBuilder b(op.getLoc(), &op);
    Value simpler;
    if (auto softmax = dyn_cast<nn::SoftmaxOp>(op))
      simpler = expand(b, softmax);
    else if (auto cumsum = dyn_cast<nn::CumsumOp>(op))
      simpler = expand(b, cumsum);
    if (!simpler)
      continue;
    op.getResult(0).replaceAllUsesWith(simpler);
    op.erase();
  }
}
