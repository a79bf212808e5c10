//===- Sampler.cpp - images read between their elements -------------------===//
#include "compiler/onnx/ops/Sampler.h"

using namespace mlir;

namespace pipec::onnx {

static Val floorOf(Emitter &e, const Val &x) { return e.unary<nn::FloorOp>(x); }

/// Back and forth between the borders of the image.
Val Sampler::reflect(const Val &x, int64_t size) {
  const double low = aligned ? 0 : -0.5,
               span = static_cast<double>(aligned ? size - 1 : size);
  if (span == 0)
    return e.splatLike(x, 0);
  const Val distance = e.unary<nn::AbsOp>(e.add(x, -low));
  const Val turns = floorOf(e, e.mul(distance, 1 / (2 * span)));
  const Val rest = e.sub(distance, e.mul(turns, 2 * span));
  const Val back = e.sub(e.splatLike(rest, 2 * span), rest);
  return e.add(e.select(e.compare("gt", rest, span), back, rest), low);
}

Sampler::Tap Sampler::tapAt(const Val &place, int64_t size) {
  Tap tap;
  const Val zero = e.splatLike(place, 0),
            last = e.splatLike(place, static_cast<double>(size - 1));
  Val at = place;
  if (padding == "zeros")
    tap.inside = e.binary<nn::AndOp>(e.compare("ge", place, zero),
                                     e.compare("le", place, last));
  else if (padding == "reflection")
    at = reflect(place, size);
  at = e.min(e.max(at, zero), last);
  // A NaN place must not become an index out of range.
  tap.index = e.cast(e.select(e.compare("ge", at, 0), at, zero), e.i64());
  return tap;
}

/// Weights of Keys' cubic with a = -0.75 for the taps at -1, 0, 1 and 2.
static std::vector<Val> cubicWeights(Emitter &e, const Val &ratio) {
  constexpr double a = -0.75;
  const auto near = [&](const Val &t) { // |t| <= 1
    return e.add(e.mul(e.mul(t, t), e.add(e.mul(t, a + 2), -(a + 3))), 1);
  };
  const auto far = [&](const Val &t) { // 1 < |t| < 2
    const Val inner = e.add(e.mul(e.add(e.mul(t, a), -5 * a), t), 8 * a);
    return e.add(e.mul(inner, t), -4 * a);
  };
  const Val other = e.sub(e.splatLike(ratio, 1), ratio);
  return {far(e.add(ratio, 1)), near(ratio), near(other), far(e.add(other, 1))};
}

std::vector<Sampler::Tap> Sampler::taps(Val x, int64_t size) {
  if (mode == "nearest")
    x = e.unary<nn::RoundOp>(x);
  if (padding == "border")
    x = e.min(e.max(x, e.splatLike(x, 0)),
              e.splatLike(x, static_cast<double>(size - 1)));
  else if (padding == "reflection")
    x = reflect(x, size);
  if (mode == "nearest")
    return {tapAt(floorOf(e, x), size)};
  const Val floor = floorOf(e, x), ratio = e.sub(x, floor);
  const std::vector<Val> weights =
      mode == "cubic"
          ? cubicWeights(e, ratio)
          : std::vector<Val>{e.sub(e.splatLike(ratio, 1), ratio), ratio};
  const int first = mode == "cubic" ? -1 : 0;
  std::vector<Tap> out;
  for (size_t i = 0; i < weights.size(); ++i) {
    out.push_back(tapAt(e.add(floor, first + static_cast<double>(i)), size));
    out.back().weight = weights[i];
  }
  return out;
}

/// Walks over the taps of all axes; `soFar` holds position, weight and validity
/// of the axes before.
void Sampler::addCorners(size_t axis, const Val &rows, const Tap &soFar) {
  const auto both = [&](const Val &p, const Val &q, bool logical) {
    if (!p || !q)
      return p ? p : q;
    return logical ? e.binary<nn::AndOp>(p, q) : e.mul(p, q);
  };
  if (axis == axes.size()) {
    Val value = e.gather(rows, soFar.index, 0); // [places..., channels]
    SmallVector<int64_t> column(soFar.index.getShape());
    column.push_back(1);
    if (soFar.weight)
      value = e.mul(value, e.reshape(soFar.weight, column));
    if (soFar.inside)
      value = e.select(e.reshape(soFar.inside, column), value,
                       e.splatLike(value, 0));
    sum = sum ? e.add(sum, value) : value;
    return;
  }
  for (const Tap &tap : axes[axis]) {
    Tap next;
    const Val step = e.mul(soFar.index, static_cast<double>(sizes[axis]));
    next.index = e.add(step, tap.index);
    next.weight = both(soFar.weight, tap.weight, false);
    next.inside = both(soFar.inside, tap.inside, true);
    addCorners(axis + 1, rows, next);
  }
}

Val Sampler::sample(const Val &rows, const Val &image, ArrayRef<Val> places) {
  axes.clear();
  sum = Val();
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    axes.push_back(taps(places[axis], sizes[axis]));
  addCorners(0, rows, {image, Val(), Val()});
  return sum;
}

} // namespace pipec::onnx
