//===- View.cpp - where the elements of a tensor are ----------------------===//
#include "compiler/target/fusion/View.h"
#include "dialects/nn/NN.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

SmallVector<int64_t> fusion::denseStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (int64_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

std::optional<SmallVector<int64_t>>
fusion::reshapeStrides(ArrayRef<int64_t> from, ArrayRef<int64_t> strides,
                       ArrayRef<int64_t> to) {
  SmallVector<int64_t> result = denseStrides(to);
  if (llvm::is_contained(from, 0))
    return result;
  // Runs of dimensions that one stride walks, innermost last; sizes of 1
  // vanish.
  struct Run {
    int64_t size, stride;
  };
  SmallVector<Run> runs;
  for (auto [size, stride] : llvm::zip_equal(from, strides)) {
    if (size == 1)
      continue;
    if (!runs.empty() && runs.back().stride == stride * size)
      runs.back() = {runs.back().size * size, stride};
    else
      runs.push_back({size, stride});
  }
  int64_t run = static_cast<int64_t>(runs.size()) - 1, walked = 1;
  for (int64_t d = to.size(); d-- > 0;) {
    if (to[d] == 1)
      continue;
    if (run < 0)
      return std::nullopt;
    result[d] = runs[run].stride * walked;
    walked *= to[d];
    if (runs[run].size % walked != 0)
      return std::nullopt;
    if (walked == runs[run].size) {
      --run;
      walked = 1;
    }
  }
  return result;
}

/// A reduction over dimensions of size 1 changes nothing.
static bool isIdentity(Operation *op) {
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    return reduce.getX().getType() == reduce.getY().getType();
  return isa<nn::StopGradientOp>(op);
}

bool fusion::isView(Operation *op) {
  return isa<nn::BroadcastOp, nn::ReshapeOp, nn::TransposeOp, nn::SliceOp,
             nn::ReverseOp>(op) ||
         isIdentity(op);
}

bool fusion::isBijectiveView(Operation *op) {
  return isa<nn::ReshapeOp, nn::TransposeOp, nn::ReverseOp>(op) ||
         isIdentity(op);
}

static void reverse(Placement &at, ArrayRef<int64_t> shape,
                    ArrayRef<int64_t> axes) {
  for (int64_t axis : axes) {
    at.offset += (shape[axis] - 1) * at.strides[axis];
    at.strides[axis] = -at.strides[axis];
  }
}

std::optional<Placement> fusion::throughView(Operation *view,
                                             const Placement &source) {
  Placement at = source;
  ArrayRef<int64_t> from = tensorType(view->getOperand(0)).getShape();
  ArrayRef<int64_t> to = tensorType(view->getResult(0)).getShape();
  if (isa<nn::BroadcastOp>(view)) {
    for (size_t d = 0; d < to.size(); ++d)
      if (from[d] != to[d])
        at.strides[d] = 0;
  } else if (isa<nn::ReshapeOp>(view)) {
    auto strides = reshapeStrides(from, source.strides, to);
    if (!strides)
      return std::nullopt;
    at.strides = *strides;
  } else if (auto op = dyn_cast<nn::TransposeOp>(view)) {
    for (auto [d, axis] : llvm::enumerate(op.getPermutation()))
      at.strides[d] = source.strides[axis];
  } else if (auto op = dyn_cast<nn::SliceOp>(view)) {
    for (size_t d = 0; d < to.size(); ++d) {
      at.offset += op.getStarts()[d] * source.strides[d];
      at.strides[d] = source.strides[d] * op.getStrides()[d];
    }
  } else if (auto op = dyn_cast<nn::ReverseOp>(view)) {
    reverse(at, to, op.getAxes());
  }
  return at;
}

std::optional<Placement> fusion::backThroughView(Operation *view,
                                                 const Placement &result) {
  Placement at = result;
  ArrayRef<int64_t> from = tensorType(view->getOperand(0)).getShape();
  ArrayRef<int64_t> to = tensorType(view->getResult(0)).getShape();
  if (isa<nn::ReshapeOp>(view)) {
    auto strides = reshapeStrides(to, result.strides, from);
    if (!strides)
      return std::nullopt;
    at.strides = *strides;
  } else if (auto op = dyn_cast<nn::TransposeOp>(view)) {
    for (auto [d, axis] : llvm::enumerate(op.getPermutation()))
      at.strides[axis] = result.strides[d];
  } else if (auto op = dyn_cast<nn::ReverseOp>(view)) {
    reverse(at, to, op.getAxes());
  }
  return at;
}
