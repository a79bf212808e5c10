//===- Deform.cpp - importer of deformable convolution --------------------===//
//
// A convolution whose taps are moved, each at each place, by offsets that are
// data: the image is read between its elements, then multiplied as columns.
// Dai et al., "Deformable Convolutional Networks" (2017); with a mask, Zhu et
// al. (2018).
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"
#include "compiler/onnx/ops/Sampler.h"
#include "compiler/onnx/ops/Window.h"

using namespace mlir;

namespace pipec::onnx {
namespace {

class DeformConv {
public:
  explicit DeformConv(NodeContext &c) : c(c), e(c.e) {}
  void run();

private:
  void readShapes();
  Val base(size_t axis);
  Val columns();

  NodeContext &c;
  Emitter &e;
  Window window;
  int64_t groups = 1, parts = 1; ///< of the channels; `parts` share offsets
  int64_t taps = 1, places = 1;
  SmallVector<int64_t> sizes, grid; ///< of the image, of the result
};

} // namespace

void DeformConv::readShapes() {
  const Val &x = image(c), &w = c.in(1), &offset = c.floatIn(2);
  Emitter::requireSameElement(x, w);
  Emitter::requireSameElement(x, offset);
  groups = c.intAttr("group", 1);
  parts = c.intAttr("offset_group", 1);
  if (!x.isFloat() || w.getRank() != x.getRank() || groups < 1 || parts < 1 ||
      x.dim(1) % groups != 0 || x.dim(1) % parts != 0 ||
      x.dim(1) / groups != w.dim(1) || w.dim(0) % groups != 0)
    c.fail("its weight " + shapeText(w.getShape()) +
           " does not fit its input " + shapeText(x.getShape()) + " in " +
           std::to_string(groups) + " groups");
  window.kernel.assign(w.getShape().begin() + 2, w.getShape().end());
  checkKernelShape(c, window.kernel);
  readWindow(c, x, window);
  sizes.assign(x.getShape().begin() + 2, x.getShape().end());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t room =
        sizes[i] + window.low[i] + window.high[i] - extent(window, i);
    if (room < 0 || extent(window, i) < 1)
      c.fail("its kernel is larger than the padded input " +
             shapeText(x.getShape()));
    grid.push_back(room / window.strides[i] + 1);
  }
  taps = ShapedType::getNumElements(window.kernel);
  places = ShapedType::getNumElements(grid);
  const auto expect = [&](const Val &v, int64_t channels, const char *what) {
    SmallVector<int64_t> shape{x.dim(0), channels};
    llvm::append_range(shape, grid);
    if (v.getShape() != ArrayRef(shape))
      c.fail(std::string("its ") + what + " " + shapeText(v.getShape()) +
             " is not of the shape " + shapeText(shape));
  };
  expect(offset, parts * taps * static_cast<int64_t>(sizes.size()), "offset");
  if (c.has(4))
    expect(c.in(4), parts * taps, "mask");
}

/// Where the taps lie along an axis without offsets: [1, 1, taps, places].
Val DeformConv::base(size_t axis) {
  const SmallVector<int64_t> tapSteps = nn::rowMajorStrides(window.kernel),
                             gridSteps = nn::rowMajorStrides(grid);
  std::vector<double> at;
  for (int64_t tap = 0; tap < taps; ++tap)
    for (int64_t place = 0; place < places; ++place)
      at.push_back(static_cast<double>(
          place / gridSteps[axis] % grid[axis] * window.strides[axis] -
          window.low[axis] +
          tap / tapSteps[axis] % window.kernel[axis] * window.dilations[axis]));
  return nn::Literal(
      RankedTensorType::get({1, 1, taps, places}, c.in(0).getElementType()),
      std::move(at));
}

/// [n, groups, channels / groups * taps, places]
Val DeformConv::columns() {
  const Val &x = c.in(0);
  const auto spatial = static_cast<int64_t>(sizes.size());
  const int64_t n = x.dim(0), width = x.dim(1) / parts,
                plane = ShapedType::getNumElements(sizes);
  const Val offset = e.reshape(c.in(2), {n, parts, taps, spatial, places});
  SmallVector<Val> at;
  for (int64_t axis = 0; axis < spatial; ++axis)
    at.push_back(e.add(
        e.reshape(e.sliceAxis(offset, 3, axis, 1), {n, parts, taps, places}),
        base(axis)));
  const Val rows = e.reshape(
      e.transpose(e.reshape(x, {n, parts, width, plane}), {0, 1, 3, 2}),
      {n * parts * plane, width});
  const auto index = RankedTensorType::get({n, parts, taps, places}, e.i64());
  const Val image = e.add(e.mul(e.iota(index, 0), static_cast<double>(parts)),
                          e.iota(index, 1));
  Val value = Sampler(e, sizes, "linear", "zeros", false)
                  .sample(rows, image, at); // [n, parts, taps, places, width]
  if (c.has(4))
    value = e.mul(value, e.reshape(c.in(4), {n, parts, taps, places, 1}));
  return e.reshape(e.transpose(value, {0, 1, 4, 2, 3}),
                   {n, groups, x.dim(1) / groups * taps, places});
}

void DeformConv::run() {
  readShapes();
  const Val &w = c.in(1);
  const int64_t n = c.in(0).dim(0), inner = w.dim(1) * taps;
  const Val kernel =
      e.broadcast(e.reshape(w, {1, groups, w.dim(0) / groups, inner}),
                  {n, groups, w.dim(0) / groups, inner});
  SmallVector<int64_t> shape{n, w.dim(0)};
  llvm::append_range(shape, grid);
  const Val y = e.reshape(e.matmul(kernel, columns()), shape);
  c.out(c.has(3) ? addChannelBias(c, y, c.in(3)) : y);
}

void importDeformConv(NodeContext &c) { DeformConv(c).run(); }

} // namespace pipec::onnx
