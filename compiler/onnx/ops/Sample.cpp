//===- Sample.cpp - importers that sample images at places ----------------===//
//
// GridSample reads 2, 4 or 1 elements an axis around a place that is only known
// at run time, by gathers; AffineGrid makes such places; Col2Im adds blocks up.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

using namespace mlir;

namespace pipec::onnx {

static Type i64(NodeContext &c) {
  return IntegerType::get(c.e.getContext(), 64);
}

//===----------------------------------------------------------------------===//
// GridSample
//===----------------------------------------------------------------------===//

namespace {

class GridSampler {
public:
  explicit GridSampler(NodeContext &c) : c(c), e(c.e) {}
  void run();

private:
  /// What one tap of one axis contributes: an index, a weight (null: 1), and
  /// whether it lies in the image (null: always).
  struct Tap {
    Val index, weight, inside;
  };
  Val coordinate(int64_t axis);
  Val reflect(const Val &x, int64_t size);
  Tap tapAt(const Val &place, int64_t size);
  std::vector<Tap> taps(int64_t axis);
  void addCorners(int64_t axis, const Val &flat, const Tap &soFar);

  NodeContext &c;
  Emitter &e;
  std::string mode, padding;
  bool aligned = false;
  std::vector<std::vector<Tap>> axes;
  Val rows; ///< [n * plane, channels]
  Val sum;  ///< [n, places, channels]
};

} // namespace

static Val floorOf(Emitter &e, const Val &x) { return e.unary<nn::FloorOp>(x); }

/// From [-1, 1] to positions along an axis of the image.
Val GridSampler::coordinate(int64_t axis) {
  const Val &x = c.in(0), &grid = c.in(1);
  const int64_t spatial = x.getRank() - 2, size = x.dim(axis + 2);
  // The last dimension counts axes from the back.
  const Val part = e.sliceAxis(grid, grid.getRank() - 1, spatial - 1 - axis, 1);
  const Val n = e.cast(
      e.reshape(part, {grid.dim(0), part.type.getNumElements() / grid.dim(0)}),
      x.getElementType());
  const auto length = static_cast<double>(size);
  if (aligned)
    return e.mul(e.add(n, 1), (length - 1) / 2);
  return e.add(e.mul(e.add(n, 1), length / 2), -0.5);
}

/// Back and forth between the borders of the image.
Val GridSampler::reflect(const Val &x, int64_t size) {
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

GridSampler::Tap GridSampler::tapAt(const Val &place, int64_t size) {
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
  tap.index = e.cast(e.select(e.compare("ge", at, 0), at, zero), i64(c));
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

std::vector<GridSampler::Tap> GridSampler::taps(int64_t axis) {
  const int64_t size = c.in(0).dim(axis + 2);
  Val x = coordinate(axis);
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
void GridSampler::addCorners(int64_t axis, const Val &x, const Tap &soFar) {
  const auto both = [&](const Val &p, const Val &q, bool logical) {
    if (!p || !q)
      return p ? p : q;
    return logical ? e.binary<nn::AndOp>(p, q) : e.mul(p, q);
  };
  if (axis == static_cast<int64_t>(axes.size())) {
    Val value = e.gather(rows, soFar.index, 0); // [n, places, channels]
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
    const Val step =
        e.mul(soFar.index, static_cast<double>(c.in(0).dim(axis + 2)));
    next.index = e.add(step, tap.index);
    next.weight = both(soFar.weight, tap.weight, false);
    next.inside = both(soFar.inside, tap.inside, true);
    addCorners(axis + 1, x, next);
  }
}

void GridSampler::run() {
  const Val &x = c.floatIn(0), &grid = c.floatIn(1);
  const int64_t spatial = x.getRank() - 2;
  mode = c.stringAttr("mode", "linear");
  mode = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
  padding = c.stringAttr("padding_mode", "zeros");
  aligned = c.intAttr("align_corners", 0) != 0;
  if (spatial < 1 || grid.getRank() != x.getRank() ||
      grid.getShape().back() != spatial || grid.dim(0) != x.dim(0))
    c.fail("its grid " + shapeText(grid.getShape()) +
           " does not fit its input " + shapeText(x.getShape()));
  if ((mode != "linear" && mode != "nearest" && mode != "cubic") ||
      (padding != "zeros" && padding != "border" && padding != "reflection"))
    c.fail("its mode '" + mode + "' or padding_mode '" + padding +
           "' is unknown");
  for (int64_t axis = 0; axis < spatial; ++axis)
    axes.push_back(taps(axis));
  // Channels last, so that a place is one row.
  SmallVector<int64_t> last{0};
  for (int64_t d = 2; d < x.getRank(); ++d)
    last.push_back(d);
  last.push_back(1);
  const Val moved = e.transpose(x, last);
  rows = e.reshape(moved, {x.type.getNumElements() / x.dim(1), x.dim(1)});
  Tap start;
  start.index =
      e.iota(RankedTensorType::get(axes[0][0].index.getShape(), i64(c)), 0);
  addCorners(0, x, start);
  SmallVector<int64_t> shape{x.dim(0)}, back{0, x.getRank() - 1};
  for (int64_t d = 1; d <= spatial; ++d) {
    shape.push_back(grid.dim(d));
    back.push_back(d);
  }
  shape.push_back(x.dim(1));
  c.out(e.transpose(e.reshape(sum, shape), back));
}

void importGridSample(NodeContext &c) { GridSampler(c).run(); }

//===----------------------------------------------------------------------===//
// AffineGrid and Col2Im
//===----------------------------------------------------------------------===//

/// Places in [-1, 1] of a regular grid, moved by the matrix of each sample.
void importAffineGrid(NodeContext &c) {
  Emitter &e = c.e;
  const Val &theta = c.floatIn(0); // [n, axes, axes + 1]
  const std::vector<int64_t> size = c.ints(1, "size");
  const int64_t spatial = static_cast<int64_t>(size.size()) - 2;
  if (spatial < 1 ||
      theta.getShape() != ArrayRef<int64_t>({size[0], spatial, spatial + 1}))
    c.fail("its matrix " + shapeText(theta.getShape()) +
           " does not fit its size " + shapeText(size));
  const bool aligned = c.intAttr("align_corners", 0) != 0;
  SmallVector<int64_t> plane(size.begin() + 2, size.end());
  int64_t count = 1;
  for (const int64_t n : plane)
    if (n < 1 || __builtin_mul_overflow(count, n, &count) || count > (1 << 24))
      c.fail("its size " + shapeText(size) + " is impossible");
  const Type element = theta.getElementType();
  // Homogeneous coordinates, the last axis first.
  std::vector<double> base;
  const SmallVector<int64_t> strides = nn::rowMajorStrides(plane);
  for (int64_t at = 0; at < count; ++at) {
    for (int64_t d = spatial; d-- > 0;) {
      const auto n = static_cast<double>(plane[d]);
      const auto i = static_cast<double>(at / strides[d] % plane[d]);
      const double value =
          aligned ? (n == 1 ? -1 : 2 * i / (n - 1) - 1) : (2 * i + 1) / n - 1;
      base.push_back(nn::roundTo(element, value));
    }
    base.push_back(1);
  }
  const Val points = nn::Literal(
      RankedTensorType::get({1, count, spatial + 1}, element), std::move(base));
  const Val y = e.matmul(e.broadcast(points, {size[0], count, spatial + 1}),
                         theta, false, true);
  SmallVector<int64_t> shape{size[0]};
  llvm::append_range(shape, plane);
  shape.push_back(spatial);
  c.out(e.reshape(y, shape));
}

/// Adds the columns of blocks into the image they were cut from.
void importCol2Im(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0); // [n, channels * taps, blocks]
  const std::vector<int64_t> image = c.ints(1, "image_shape"),
                             block = c.ints(2, "block_shape");
  const size_t spatial = image.size();
  const auto attribute = [&](const char *name, size_t count,
                             int64_t otherwise) {
    const auto given = c.intsAttr(name);
    if (given && given->size() != count)
      c.fail(std::string("its attribute '") + name + "' does not fit");
    return given ? *given : std::vector<int64_t>(count, otherwise);
  };
  const auto strides = attribute("strides", spatial, 1),
             dilations = attribute("dilations", spatial, 1),
             pads = attribute("pads", 2 * spatial, 0);
  if (x.getRank() != 3 || block.size() != spatial || spatial == 0)
    c.fail("its shapes do not fit each other");
  SmallVector<int64_t> padded, places, taps(block.begin(), block.end());
  int64_t plane = 1, blocks = 1, tapCount = 1;
  for (size_t d = 0; d < spatial; ++d) {
    if (image[d] < 1 || block[d] < 1 || strides[d] < 1 || dilations[d] < 1 ||
        pads[d] < 0 || pads[spatial + d] < 0 || image[d] > (1 << 20) ||
        block[d] > (1 << 20) || dilations[d] > (1 << 20) ||
        pads[d] > (1 << 20) || pads[spatial + d] > (1 << 20))
      c.fail("its sizes are impossible");
    padded.push_back(image[d] + pads[d] + pads[spatial + d]);
    const int64_t room = padded[d] - (block[d] - 1) * dilations[d] - 1;
    places.push_back(room < 0 ? 0 : room / strides[d] + 1);
    blocks *= places[d];
    tapCount *= block[d];
    if (__builtin_mul_overflow(plane, padded[d], &plane) ||
        plane > (int64_t(1) << 40))
      c.fail("its sizes are impossible");
  }
  if (blocks != x.dim(2) || x.dim(1) % tapCount != 0)
    c.fail("its " + std::to_string(x.dim(2)) +
           " blocks do not cover an image of " + shapeText(image));
  const SmallVector<int64_t> steps = nn::rowMajorStrides(padded);
  const SmallVector<int64_t> tapSteps = nn::rowMajorStrides(taps),
                             placeSteps = nn::rowMajorStrides(places);
  std::vector<int64_t> positions;
  for (int64_t tap = 0; tap < tapCount; ++tap)
    for (int64_t place = 0; place < blocks; ++place) {
      int64_t at = 0;
      for (size_t d = 0; d < spatial; ++d)
        at += (place / placeSteps[d] % places[d] * strides[d] +
               tap / tapSteps[d] % taps[d] * dilations[d]) *
              steps[d];
      positions.push_back(at);
    }
  const int64_t channels = x.dim(1) / tapCount;
  const Val updates = e.reshape(x, {x.dim(0), channels, tapCount * blocks});
  const Val sum = e.scatterAdd(
      x.type.clone({x.dim(0), channels, plane}),
      nn::Literal(RankedTensorType::get({tapCount * blocks}, i64(c)),
                  std::move(positions)),
      updates, 2);
  SmallVector<int64_t> shape{x.dim(0), channels}, starts{0, 0},
      sizes{x.dim(0), channels};
  for (size_t d = 0; d < spatial; ++d) {
    shape.push_back(padded[d]);
    starts.push_back(pads[d]);
    sizes.push_back(image[d]);
  }
  c.out(e.slice(e.reshape(sum, shape), starts, sizes,
                SmallVector<int64_t>(shape.size(), 1)));
}

} // namespace pipec::onnx
