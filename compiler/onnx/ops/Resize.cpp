//===- Resize.cpp - importers of Resize and Upsample ----------------------===//
//
// Interpolation is separable: each axis is resized alone, an output element
// being a weighted sum of a few elements whose places are known at compile
// time.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace pipec::onnx {

namespace {

/// What each output position of an axis reads: `count` taps.
struct Taps {
  int64_t count = 1;
  std::vector<int64_t> index;      ///< [tap][position]
  std::vector<double> coefficient; ///< the same
  std::vector<bool> outside; ///< by position: takes the extrapolation value
};

class ResizeNode {
public:
  ResizeNode(NodeContext &c) : c(c), e(c.e) {}
  Val run(const std::string &defaultTransform, const Val &x,
          const std::vector<double> &scales, const std::vector<int64_t> &sizes,
          const std::vector<double> &roi);

private:
  double source(double at, int64_t in, int64_t out, double scale,
                double roiStart, double roiEnd) const;
  std::vector<double> weights(double ratio, double scale) const;
  Taps tapsOf(int64_t in, int64_t out, double scale, double roiStart,
              double roiEnd) const;
  Val resizeAxis(const Val &x, int64_t axis, int64_t out, const Taps &taps);

  NodeContext &c;
  Emitter &e;
  std::string mode, transform, nearest;
  bool antialias = false, excludeOutside = false;
  double cubic = -0.75, extrapolation = 0;
};

} // namespace

/// Where output position `at` lies in the input.
double ResizeNode::source(double at, int64_t in, int64_t out, double scale,
                          double roiStart, double roiEnd) const {
  const double length = scale * static_cast<double>(in);
  const double last = static_cast<double>(in - 1);
  if (transform == "align_corners")
    return length == 1 ? 0 : at * last / (length - 1);
  if (transform == "asymmetric")
    return at / scale;
  if (transform == "tf_crop_and_resize")
    return roiStart * last +
           (length == 1 ? (roiEnd - roiStart) * last / 2
                        : at * (roiEnd - roiStart) * last / (length - 1));
  if (transform == "pytorch_half_pixel" && length == 1)
    return -0.5;
  if (transform == "half_pixel" || transform == "pytorch_half_pixel")
    return (at + 0.5) / scale - 0.5;
  if (transform == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(out) / length;
    return static_cast<double>(in) / 2 * (1 - adjustment) + (at + 0.5) / scale -
           0.5;
  }
  c.fail("its coordinate_transformation_mode '" + transform + "' is unknown");
}

static double cubicWeight(double x, double a) {
  x = std::fabs(x);
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// Weights of the taps around a position, `ratio` in (0, 1] right of the tap in
/// the middle. With antialiasing a shrinking filter gets wider.
std::vector<double> ResizeNode::weights(double ratio, double scale) const {
  if (mode == "nearest") {
    const bool whole = ratio == 1;
    const bool right = whole                             ? true
                       : nearest == "round_prefer_floor" ? ratio > 0.5
                       : nearest == "round_prefer_ceil"  ? ratio >= 0.5
                                                         : nearest == "ceil";
    return {right ? 0.0 : 1.0, right ? 1.0 : 0.0};
  }
  const double shrink = antialias ? std::min(scale, 1.0) : 1.0;
  const double radius = mode == "linear" ? 1 : 2;
  if (radius / shrink > 4096)
    c.fail("it shrinks by more than a factor of a thousand");
  const auto first = static_cast<int64_t>(std::floor(-radius / shrink)) + 1;
  std::vector<double> out;
  double sum = 0;
  for (int64_t i = first; i <= 1 - first; ++i) {
    const double x = (static_cast<double>(i) - ratio) * shrink;
    out.push_back(mode == "linear" ? std::max(0.0, 1 - std::fabs(x))
                                   : cubicWeight(x, cubic));
    sum += out.back();
  }
  if (antialias)
    for (double &w : out)
      w /= sum;
  return out;
}

Taps ResizeNode::tapsOf(int64_t in, int64_t out, double scale, double roiStart,
                        double roiEnd) const {
  Taps taps;
  for (int64_t i = 0; i < out; ++i) {
    // Far outside is outside: keeps the arithmetic on indices in range.
    const double at = std::clamp(
        source(static_cast<double>(i), in, out, scale, roiStart, roiEnd), -1e9,
        1e9);
    if (std::isnan(at))
      c.fail("its roi or scales are no numbers");
    const double floor = std::floor(at);
    const double ratio = at == floor ? 1 : at - floor;
    std::vector<double> w = weights(ratio, scale);
    taps.count = static_cast<int64_t>(w.size());
    if (i == 0) {
      taps.index.resize(taps.count * out);
      taps.coefficient.resize(taps.count * out);
    }
    // A position on an element counts as just right of the one before.
    const int64_t first = static_cast<int64_t>(floor) - (at == floor ? 1 : 0) -
                          taps.count / 2 + 1;
    double kept = 0;
    for (int64_t t = 0; t < taps.count; ++t) {
      const bool inside = first + t >= 0 && first + t < in;
      if (excludeOutside && !inside)
        w[t] = 0;
      kept += w[t];
      taps.index[t * out + i] = std::clamp<int64_t>(first + t, 0, in - 1);
    }
    for (int64_t t = 0; t < taps.count; ++t)
      taps.coefficient[t * out + i] = excludeOutside ? w[t] / kept : w[t];
    taps.outside.push_back(transform == "tf_crop_and_resize" &&
                           (at < 0 || at > static_cast<double>(in - 1)));
  }
  return taps;
}

/// Whether position i reads element i / factor for a whole factor.
static bool repeatsEach(ArrayRef<int64_t> index, int64_t in) {
  const auto out = static_cast<int64_t>(index.size());
  if (out % in != 0)
    return false;
  for (int64_t i = 0; i < out; ++i)
    if (index[i] != i / (out / in))
      return false;
  return true;
}

Val ResizeNode::resizeAxis(const Val &x, int64_t axis, int64_t out,
                           const Taps &taps) {
  const auto tap = [&](int64_t t) {
    return ArrayRef(taps.index).slice(t * out, out);
  };
  Val y;
  if (mode == "nearest") {
    std::vector<int64_t> index(out);
    for (int64_t i = 0; i < out; ++i)
      index[i] = taps.coefficient[i] != 0 ? tap(0)[i] : tap(1)[i];
    if (repeatsEach(index, x.dim(axis))) {
      SmallVector<int64_t> thin(x.getShape()), wide, shape(x.getShape());
      thin.insert(thin.begin() + axis + 1, 1);
      wide = thin;
      wide[axis + 1] = out / x.dim(axis);
      shape[axis] = out;
      y = e.reshape(e.broadcast(e.reshape(x, thin), wide), shape);
    } else {
      y = e.gather(x, e.ints(index), axis);
    }
  } else {
    SmallVector<int64_t> column(x.getRank(), 1);
    column[axis] = out;
    for (int64_t t = 0; t < taps.count; ++t) {
      const auto type = RankedTensorType::get(column, x.getElementType());
      std::vector<double> w(taps.coefficient.begin() + t * out,
                            taps.coefficient.begin() + (t + 1) * out);
      if (llvm::all_of(w, [](double v) { return v == 0; }))
        continue;
      for (double &v : w)
        v = nn::roundTo(x.getElementType(), v);
      const Val term = e.mul(e.gather(x, e.ints(tap(t)), axis),
                             nn::Literal(type, std::move(w)));
      y = y ? e.add(y, term) : term;
    }
  }
  if (llvm::is_contained(taps.outside, true)) {
    SmallVector<int64_t> column(x.getRank(), 1);
    column[axis] = out;
    const auto type =
        RankedTensorType::get(column, IntegerType::get(e.getContext(), 1));
    const Val outside = nn::Literal(
        type, std::vector<int64_t>(taps.outside.begin(), taps.outside.end()));
    y = e.select(outside, e.scalar(y.getElementType(), extrapolation), y);
  }
  return y;
}

Val ResizeNode::run(const std::string &defaultTransform, const Val &input,
                    const std::vector<double> &scales,
                    const std::vector<int64_t> &sizes,
                    const std::vector<double> &roi) {
  mode = c.stringAttr("mode", "nearest");
  transform = c.stringAttr("coordinate_transformation_mode", defaultTransform);
  nearest = c.stringAttr("nearest_mode", "round_prefer_floor");
  antialias = c.intAttr("antialias", 0) != 0;
  excludeOutside = c.intAttr("exclude_outside", 0) != 0;
  cubic = c.floatAttr("cubic_coeff_a", -0.75);
  extrapolation = c.floatAttr("extrapolation_value", 0);
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    c.fail("its mode '" + mode + "' is unknown");
  if (mode != "nearest" && !input.isFloat())
    c.fail("it interpolates integers");
  Val x = input;
  for (int64_t axis = 0; axis < x.getRank(); ++axis) {
    const int64_t in = input.dim(axis), out = sizes[axis];
    const double scale = scales[axis], start = roi[axis],
                 end = roi[x.getRank() + axis];
    if (in == out && scale == 1 && start == 0 && end == 1)
      continue;
    if (out < 1 || out > (1 << 20) || !(scale > 0) || in < 1)
      c.fail("it makes " + std::to_string(out) + " elements of " +
             std::to_string(in) + " along axis " + std::to_string(axis));
    x = resizeAxis(x, axis, out, tapsOf(in, out, scale, start, end));
  }
  return x;
}

/// Scales and sizes for all axes, from inputs that may cover only some.
void importResize(NodeContext &c) {
  const Val &x = c.in(0);
  const int64_t rank = x.getRank();
  // Opset 10 has (X, scales); later (X, roi, scales, sizes).
  const size_t scalesAt = c.opset < 11 ? 1 : 2;
  std::vector<int64_t> axes;
  if (const auto given = c.intsAttr("axes"))
    for (const int64_t a : *given)
      axes.push_back(c.axis(a, rank));
  else
    for (int64_t i = 0; i < rank; ++i)
      axes.push_back(i);
  const auto isEmpty = [&](size_t i) {
    return !c.has(i) || c.in(i).type.getNumElements() == 0;
  };
  std::vector<double> scales(rank, 1), roi(2 * rank, 0);
  std::vector<int64_t> sizes(x.getShape().begin(), x.getShape().end());
  std::fill(roi.begin() + rank, roi.end(), 1);
  const auto checkCount = [&](size_t count, size_t each) {
    if (count != axes.size() * each)
      c.fail("its scales, sizes or roi do not fit its axes");
  };
  if (c.stringAttr("coordinate_transformation_mode", "") ==
          "tf_crop_and_resize" &&
      !isEmpty(1)) {
    const std::vector<double> given = c.known(1, "roi").doubles();
    checkCount(given.size(), 2);
    for (size_t i = 0; i < axes.size(); ++i) {
      roi[axes[i]] = given[i];
      roi[rank + axes[i]] = given[axes.size() + i];
    }
  }
  if (!isEmpty(scalesAt)) {
    const std::vector<double> given = c.known(scalesAt, "scales").doubles();
    checkCount(given.size(), 1);
    for (size_t i = 0; i < axes.size(); ++i) {
      scales[axes[i]] = given[i];
      const double size =
          std::floor(static_cast<double>(x.dim(axes[i])) * given[i]);
      sizes[axes[i]] = size > 0 && size < 1e9 ? static_cast<int64_t>(size) : 0;
    }
  } else if (!isEmpty(3)) {
    const std::vector<int64_t> given = c.ints(3, "sizes");
    checkCount(given.size(), 1);
    for (size_t i = 0; i < axes.size(); ++i)
      sizes[axes[i]] = given[i];
    const std::string policy =
        c.stringAttr("keep_aspect_ratio_policy", "stretch");
    double common = policy == "not_larger" ? 1e30 : 0;
    for (const int64_t a : axes) {
      scales[a] = static_cast<double>(sizes[a]) / static_cast<double>(x.dim(a));
      common = policy == "not_larger" ? std::min(common, scales[a])
                                      : std::max(common, scales[a]);
    }
    if (policy != "stretch")
      for (const int64_t a : axes) {
        scales[a] = common;
        sizes[a] =
            static_cast<int64_t>(common * static_cast<double>(x.dim(a)) + 0.5);
      }
  } else {
    c.fail("it has neither scales nor sizes");
  }
  c.out(ResizeNode(c).run(c.opset < 11 ? "asymmetric" : "half_pixel", x, scales,
                          sizes, roi));
}

/// The older operator: scales of all axes, nearest by floor or linear.
void importUpsample(NodeContext &c) {
  const Val &x = c.in(0);
  const int64_t rank = x.getRank();
  std::vector<double> scales;
  if (c.has(1))
    scales = c.known(1, "scales").doubles();
  else if (const auto given = c.floatsAttr("scales"))
    scales.assign(given->begin(), given->end());
  if (static_cast<int64_t>(scales.size()) != rank)
    c.fail("its scales do not fit its input");
  std::vector<int64_t> sizes;
  std::vector<double> roi(2 * rank, 0);
  std::fill(roi.begin() + rank, roi.end(), 1);
  for (int64_t i = 0; i < rank; ++i)
    sizes.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(x.dim(i)) * scales[i])));
  if (c.stringAttr("mode", "nearest") == "nearest") {
    Val y = x;
    for (int64_t i = 0; i < rank; ++i) {
      if (sizes[i] < 1 || sizes[i] > (1 << 20))
        c.fail("its scales are impossible");
      std::vector<int64_t> index(sizes[i]);
      for (int64_t at = 0; at < sizes[i]; ++at)
        index[at] =
            std::min(x.dim(i) - 1, static_cast<int64_t>(std::floor(
                                       static_cast<double>(at) / scales[i])));
      if (sizes[i] != x.dim(i))
        y = c.e.gather(y, c.e.ints(index), i);
    }
    c.out(y);
    return;
  }
  c.out(ResizeNode(c).run("asymmetric", x, scales, sizes, roi));
}

} // namespace pipec::onnx
