//===- Pool.cpp - evaluation of pooling and its gradients -----------------===//
#include "dialects/nn/eval/Kernels.h"
#include <cmath>

using namespace mlir;

namespace pipec::nn::eval {

namespace {
/// The windows of a pooling: which elements of the plane each place reads.
struct Windows {
  SmallVector<int64_t> sizes, places;
  ArrayRef<int64_t> kernel, strides, dilations, low;

  int64_t planeElements() const { return ShapedType::getNumElements(sizes); }
  int64_t placeElements() const { return ShapedType::getNumElements(places); }
  int64_t taps() const { return ShapedType::getNumElements(kernel); }
  /// Elements of the plane under the window of a place, in row-major order.
  SmallVector<int64_t> under(int64_t place) const {
    SmallVector<int64_t> out;
    for (int64_t tap = 0, end = taps(); tap < end; ++tap) {
      int64_t at = 0, p = place, t = tap, step = 1;
      bool inside = true;
      for (size_t d = sizes.size(); d-- > 0;) {
        const int64_t i = (p % places[d]) * strides[d] - low[d] +
                          (t % kernel[d]) * dilations[d];
        p /= places[d], t /= kernel[d];
        inside &= i >= 0 && i < sizes[d];
        at += i * step, step *= sizes[d];
      }
      if (inside)
        out.push_back(at);
    }
    return out;
  }
};
} // namespace

template <typename Op>
static Windows windows(Op op, ArrayRef<int64_t> x, ArrayRef<int64_t> y) {
  return {SmallVector<int64_t>(x.drop_front(2)),
          SmallVector<int64_t>(y.drop_front(2)),
          op.getKernel(),
          op.getStrides(),
          op.getDilations(),
          op.getPadsLow()};
}

static Results maxPool(MaxPoolOp op, const Context &c) {
  const RankedTensorType type = resultType(op);
  const Windows w = windows(op, c[0].getShape(), type.getShape());
  const int64_t plane = w.planeElements(), places = w.placeElements();
  const std::vector<double> x = c[0].doubles();
  std::vector<double> y;
  std::vector<int64_t> index;
  for (int64_t image = 0; image * plane < int64_t(x.size()); ++image)
    for (int64_t place = 0; place < places; ++place) {
      int64_t best = -1;
      for (int64_t at : w.under(place)) {
        const double v = x[image * plane + at];
        if (best < 0 || v > x[image * plane + best] || std::isnan(v))
          best = at;
        if (std::isnan(v))
          break;
      }
      y.push_back(best < 0 ? -INFINITY : x[image * plane + best]);
      index.push_back(best);
    }
  const RankedTensorType indexType = resultType(op, 1);
  Literal values =
      c[0].isFloat() ? c.floats(type, std::move(y))
                     : Literal(type, std::vector<int64_t>(y.begin(), y.end()));
  return Results{values, Literal(indexType, std::move(index))};
}

static Literal maxPoolGrad(MaxPoolGradOp op, const Context &c) {
  const RankedTensorType type = resultType(op);
  const Windows w = windows(op, type.getShape(), c[0].getShape());
  const int64_t plane = w.planeElements(), places = w.placeElements();
  const std::vector<double> dy = c[0].doubles();
  const std::vector<int64_t> index = c[1].integers();
  std::vector<double> dx(type.getNumElements(), 0);
  for (size_t i = 0; i < dy.size(); ++i)
    if (index[i] >= 0)
      dx[int64_t(i) / places * plane + index[i]] += dy[i];
  return c.floats(type, std::move(dx));
}

static Literal avgPool(AvgPoolOp op, const Context &c) {
  const RankedTensorType type = resultType(op);
  const Windows w = windows(op, c[0].getShape(), type.getShape());
  const int64_t plane = w.planeElements(), places = w.placeElements();
  const std::vector<double> x = c[0].doubles();
  std::vector<double> y;
  for (int64_t image = 0; image * plane < int64_t(x.size()); ++image)
    for (int64_t place = 0; place < places; ++place) {
      double sum = 0;
      const SmallVector<int64_t> under = w.under(place);
      for (int64_t at : under)
        sum += x[image * plane + at];
      y.push_back(sum / (op.getCountPad() ? w.taps() : int64_t(under.size())));
    }
  return c.floats(type, std::move(y));
}

static Literal avgPoolGrad(AvgPoolGradOp op, const Context &c) {
  const RankedTensorType type = resultType(op);
  const Windows w = windows(op, type.getShape(), c[0].getShape());
  const int64_t plane = w.planeElements(), places = w.placeElements();
  const std::vector<double> dy = c[0].doubles();
  std::vector<double> dx(type.getNumElements(), 0);
  for (size_t i = 0; i < dy.size(); ++i) {
    const SmallVector<int64_t> under = w.under(int64_t(i) % places);
    for (int64_t at : under)
      dx[int64_t(i) / places * plane + at] +=
          dy[i] / (op.getCountPad() ? w.taps() : int64_t(under.size()));
  }
  return c.floats(type, std::move(dx));
}

FailureOr<Results> pooling(Operation *op, const Context &c) {
  if (auto max = dyn_cast<MaxPoolOp>(op))
    return maxPool(max, c);
  if (auto maxGrad = dyn_cast<MaxPoolGradOp>(op))
    return Results{maxPoolGrad(maxGrad, c)};
  if (auto avg = dyn_cast<AvgPoolOp>(op))
    return Results{avgPool(avg, c)};
  if (auto avgGrad = dyn_cast<AvgPoolGradOp>(op))
    return Results{avgPoolGrad(avgGrad, c)};
  return Results{};
}

} // namespace pipec::nn::eval
