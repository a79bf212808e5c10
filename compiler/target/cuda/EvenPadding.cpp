//===- EvenPadding.cpp - convolutions as cuDNN takes them -----------------===//
#include "compiler/target/cuda/EvenPadding.h"
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec;
using nn::NNBuilder;
using nn::tensorType;

/// y[i] = x[i + start], or 0 where there is no such element; along the spatial
/// axes of x.
static Value window(NNBuilder &b, Value x, ArrayRef<int64_t> starts,
                    ArrayRef<int64_t> sizes) {
  SmallVector<int64_t> shape(tensorType(x).getShape()), low(shape.size(), 0),
      high(low), first(low), none(low), ones(shape.size(), 1);
  SmallVector<int64_t> result(shape);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t axis = i + 2;
    low[axis] = std::max<int64_t>(0, -starts[i]);
    first[axis] = std::max<int64_t>(0, starts[i]);
    high[axis] = std::max<int64_t>(0, starts[i] + sizes[i] - shape[axis]);
    shape[axis] += low[axis] + high[axis];
    result[axis] = sizes[i];
  }
  if (shape != tensorType(x).getShape())
    x = nn::PadOp::create(b, x, low, high, none, llvm::APFloat(0.0));
  return shape == result ? x : nn::slice(b, x, first, result, ones);
}

namespace {
/// How a convolution's input becomes one that needs no padding along the axes
/// that cuDNN does not take.
struct Change {
  bool any = false;
  SmallVector<int64_t> low, high;     ///< padding that stays
  SmallVector<int64_t> starts, sizes; ///< of the input's window
};
} // namespace

template <typename Op>
static Change changeOf(Op op, Value x, Value w, Value y) {
  Change change;
  for (int64_t i = 0, rank = tensorType(x).getRank() - 2; i < rank; ++i) {
    const int64_t in = tensorType(x).getDimSize(i + 2),
                  out = tensorType(y).getDimSize(i + 2),
                  kernel = tensorType(w).getDimSize(i + 2),
                  stride = op.getStrides()[i], low = op.getPadsLow()[i];
    const int64_t reach = op.getDilations()[i] * (kernel - 1) + 1;
    const bool even = low >= 0 && in + 2 * low >= reach &&
                      (in + 2 * low - reach) / stride + 1 == out;
    change.any |= !even;
    change.low.push_back(even ? low : 0);
    change.high.push_back(even ? low : 0);
    change.starts.push_back(even ? 0 : -low);
    change.sizes.push_back(even ? in : (out - 1) * stride + reach);
  }
  return change;
}

template <typename Op> static void change(Op op, const Change &change) {
  NNBuilder b(op.getLoc(), op);
  if (auto conv = dyn_cast<nn::ConvGradInputOp>(*op)) {
    auto type = tensorType(conv.getDx());
    SmallVector<int64_t> shape(type.getShape()), starts, sizes;
    for (size_t i = 0; i < change.sizes.size(); ++i) {
      starts.push_back(-change.starts[i]);
      sizes.push_back(shape[i + 2]);
      shape[i + 2] = change.sizes[i];
    }
    conv.getDx().setType(type.clone(shape));
    b.setInsertionPointAfter(op);
    Value dx = window(b, conv.getDx(), starts, sizes);
    // All of it but the window itself reads the window.
    SmallPtrSet<Operation *, 2> own;
    for (Operation *user = dx.getDefiningOp(); user != op.getOperation();
         user = user->getOperand(0).getDefiningOp())
      own.insert(user);
    conv.getDx().replaceAllUsesExcept(dx, own);
  } else {
    op->setOperand(0,
                   window(b, op->getOperand(0), change.starts, change.sizes));
  }
  op.setPadsLow(change.low);
  op.setPadsHigh(change.high);
}

void cuda::evenPadding(func::FuncOp func) {
  auto visit = [](auto op, Value x, Value w, Value y) {
    if (Change found = changeOf(op, x, w, y); found.any)
      change(op, found);
  };
  for (Operation &op : llvm::make_early_inc_range(func.getBody().front())) {
    if (auto conv = dyn_cast<nn::ConvOp>(op))
      visit(conv, conv.getX(), conv.getW(), conv.getY());
    else if (auto conv = dyn_cast<nn::ConvGradInputOp>(op))
      visit(conv, conv.getDx(), conv.getW(), conv.getDy());
    else if (auto conv = dyn_cast<nn::ConvGradWeightOp>(op))
      visit(conv, conv.getX(), conv.getDw(), conv.getDy());
  }
}
