//===- Roi.cpp - importer of pooling over regions -------------------------===//
//
// RoiAlign reads the image at a grid of places inside each region, between its
// elements, and takes the mean or the maximum of the places of a bin.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

using namespace mlir;

namespace pipec::onnx {

namespace {

class RoiAligner {
public:
  explicit RoiAligner(NodeContext &c) : c(c), e(c.e) {}
  void run();

private:
  /// One axis of the grids: [regions, places].
  struct Places {
    Val inside, lower, upper, ratio; // of the way from lower to upper
  };
  Places places(int64_t axis, int64_t bins, bool halfPixel);
  Val corner(const Places &y, const Places &x, bool upperY, bool upperX);
  void combine(const Val &value);

  NodeContext &c;
  Emitter &e;
  int64_t samples = 0; ///< places of a bin along one axis
  bool maximum = false;
  Val rows;    ///< [images * height * width, channels]
  Val origins; ///< row where the image of each region begins, [regions, 1, 1]
  Val result;  ///< [regions, places, places, channels]
};

} // namespace

RoiAligner::Places RoiAligner::places(int64_t axis, int64_t bins,
                                      bool halfPixel) {
  const Val &rois = c.in(1);
  const int64_t size = c.in(0).dim(axis + 2);
  const double scale = c.floatAttr("spatial_scale", 1);
  const Type element = rois.getElementType();
  const auto edge = [&](int64_t column) {
    return e.add(e.mul(e.sliceAxis(rois, 1, column, 1), scale),
                 halfPixel ? -0.5 : 0);
  };
  // x before y.
  const Val start = edge(1 - axis);
  Val extent = e.sub(edge(3 - axis), start);
  if (!halfPixel)
    extent = e.max(extent, e.splatLike(extent, 1));
  std::vector<double> parts;
  for (int64_t i = 0; i < bins * samples; ++i)
    parts.push_back(
        nn::roundTo(element, (static_cast<double>(i) + 0.5) /
                                 static_cast<double>(bins * samples)));
  const Val along = nn::Literal(
      RankedTensorType::get({1, bins * samples}, element), std::move(parts));
  const Val at = e.add(start, e.mul(extent, along));
  Places p;
  const auto length = static_cast<double>(size);
  p.inside =
      e.binary<nn::AndOp>(e.compare("ge", at, -1), e.compare("le", at, length));
  // A NaN place must not become an index out of range.
  const Val safe = e.select(p.inside, at, e.splatLike(at, 0));
  const Val last = e.splatLike(at, length - 1);
  const Val place = e.min(e.max(safe, e.splatLike(at, 0)), last);
  const Val floor = e.unary<nn::FloorOp>(place);
  const Type i64 = e.i64();
  p.ratio = e.sub(place, floor);
  p.lower = e.cast(floor, i64);
  p.upper = e.cast(e.min(e.add(floor, 1), last), i64);
  return p;
}

/// The elements at one of the four corners around each place, weighted.
Val RoiAligner::corner(const Places &y, const Places &x, bool upperY,
                       bool upperX) {
  const auto column = [&](const Val &v) {
    return e.reshape(v, {v.dim(0), v.dim(1), 1});
  };
  const auto row = [&](const Val &v) {
    return e.reshape(v, {v.dim(0), 1, v.dim(1)});
  };
  const auto weight = [&](const Places &p, bool upper) {
    return upper ? p.ratio : e.sub(e.splatLike(p.ratio, 1), p.ratio);
  };
  const auto width = static_cast<double>(c.in(0).dim(3));
  const Val index =
      e.add(origins, e.add(e.mul(column(upperY ? y.upper : y.lower), width),
                           row(upperX ? x.upper : x.lower)));
  const Val factor =
      e.cast(e.mul(column(weight(y, upperY)), row(weight(x, upperX))),
             rows.getElementType());
  const Val inside = e.binary<nn::AndOp>(column(y.inside), row(x.inside));
  SmallVector<int64_t> shape(index.getShape());
  shape.push_back(1);
  const Val value = e.mul(e.gather(rows, index, 0), e.reshape(factor, shape));
  return e.select(e.reshape(inside, shape), value, e.splatLike(value, 0));
}

void RoiAligner::combine(const Val &value) {
  result = !result   ? value
           : maximum ? e.max(result, value)
                     : e.add(result, value);
}

void RoiAligner::run() {
  const Val &x = c.floatIn(0), &rois = c.floatIn(1), &images = c.in(2);
  const int64_t height = c.intAttr("output_height", 1),
                width = c.intAttr("output_width", 1);
  samples = c.intAttr("sampling_ratio", 0);
  const std::string mode = c.stringAttr("mode", "avg"),
                    pixel = c.stringAttr("coordinate_transformation_mode",
                                         c.opset >= 16 ? "half_pixel"
                                                       : "output_half_pixel");
  maximum = mode == "max";
  if (x.getRank() != 4 || rois.getRank() != 2 || rois.dim(1) != 4 ||
      images.getShape() != ArrayRef<int64_t>({rois.dim(0)}))
    c.fail("its regions " + shapeText(rois.getShape()) +
           " do not fit its input " + shapeText(x.getShape()));
  if (samples < 1)
    c.fail("with sampling_ratio 0 the number of places depends on the region",
           "export the model with a sampling_ratio");
  if (height < 1 || width < 1 || height > (1 << 16) || width > (1 << 16) ||
      samples > (1 << 10) || (mode != "avg" && mode != "max") ||
      (pixel != "half_pixel" && pixel != "output_half_pixel"))
    c.fail("its attributes are impossible");
  const int64_t plane = x.dim(2) * x.dim(3), regions = rois.dim(0);
  rows = e.reshape(e.transpose(x, {0, 2, 3, 1}), {x.dim(0) * plane, x.dim(1)});
  const Type i64 = e.i64();
  origins = e.reshape(e.mul(e.cast(images, i64), static_cast<double>(plane)),
                      {regions, 1, 1});
  const Places down = places(0, height, pixel == "half_pixel"),
               across = places(1, width, pixel == "half_pixel");
  for (const bool lower : {false, true})
    for (const bool right : {false, true})
      combine(corner(down, across, lower, right));
  const Val bins =
      e.reshape(result, {regions, height, samples, width, samples, x.dim(1)});
  const Val pooled =
      maximum ? e.reduce("max", bins, {2, 4}) : e.mean(bins, {2, 4});
  c.out(e.transpose(e.reshape(pooled, {regions, height, width, x.dim(1)}),
                    {0, 3, 1, 2}));
}

void importRoiAlign(NodeContext &c) { RoiAligner(c).run(); }

} // namespace pipec::onnx
