//===- Sample.cpp - importers that sample images at places ----------------===//
//
// GridSample reads images at places that are only known at run time; AffineGrid
// makes such places; Col2Im adds blocks up.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"
#include "compiler/onnx/ops/Sampler.h"

using namespace mlir;

namespace pipec::onnx {

//===----------------------------------------------------------------------===//
// GridSample
//===----------------------------------------------------------------------===//

/// Places along an axis of the image, from coordinates in [-1, 1].
static Val placesOf(NodeContext &c, int64_t axis, bool aligned) {
  Emitter &e = c.e;
  const Val &x = c.in(0), &grid = c.in(1);
  const int64_t spatial = x.getRank() - 2;
  // The last dimension counts axes from the back.
  const Val part = e.sliceAxis(grid, grid.getRank() - 1, spatial - 1 - axis, 1);
  const Val n = e.cast(
      e.reshape(part, {grid.dim(0), part.type.getNumElements() / grid.dim(0)}),
      x.getElementType());
  const auto length = static_cast<double>(x.dim(axis + 2));
  if (aligned)
    return e.mul(e.add(n, 1), (length - 1) / 2);
  return e.add(e.mul(e.add(n, 1), length / 2), -0.5);
}

void importGridSample(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0), &grid = c.floatIn(1);
  const int64_t spatial = x.getRank() - 2;
  std::string mode = c.stringAttr("mode", "linear");
  mode = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
  const std::string padding = c.stringAttr("padding_mode", "zeros");
  const bool aligned = c.intAttr("align_corners", 0) != 0;
  if (spatial < 1 || grid.getRank() != x.getRank() ||
      grid.getShape().back() != spatial || grid.dim(0) != x.dim(0))
    c.fail("its grid " + shapeText(grid.getShape()) +
           " does not fit its input " + shapeText(x.getShape()));
  if ((mode != "linear" && mode != "nearest" && mode != "cubic") ||
      (padding != "zeros" && padding != "border" && padding != "reflection"))
    c.fail("its mode '" + mode + "' or padding_mode '" + padding +
           "' is unknown");
  SmallVector<Val> places;
  for (int64_t axis = 0; axis < spatial; ++axis)
    places.push_back(placesOf(c, axis, aligned));
  // Channels last, so that a place is one row.
  SmallVector<int64_t> last{0};
  for (int64_t d = 2; d < x.getRank(); ++d)
    last.push_back(d);
  last.push_back(1);
  const Val moved = e.transpose(x, last);
  const Val rows =
      e.reshape(moved, {x.type.getNumElements() / x.dim(1), x.dim(1)});
  const Val image =
      e.iota(RankedTensorType::get(places[0].getShape(), e.i64()), 0);
  Sampler sampler(e, x.getShape().drop_front(2), mode, padding, aligned);
  const Val sum = sampler.sample(rows, image, places);
  SmallVector<int64_t> shape{x.dim(0)}, back{0, x.getRank() - 1};
  for (int64_t d = 1; d <= spatial; ++d) {
    shape.push_back(grid.dim(d));
    back.push_back(d);
  }
  shape.push_back(x.dim(1));
  c.out(e.transpose(e.reshape(sum, shape), back));
}

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
      nn::Literal(RankedTensorType::get({tapCount * blocks}, e.i64()),
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
