//===- Signal.cpp - importers of Fourier transforms and windows -----------===//
//
// A transform of a known length is a product with a matrix of cosines and
// sines: its gradient is the product with the transpose.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <cmath>

using namespace mlir;

namespace pipec::onnx {

/// Elements of the matrix of a transform.
constexpr int64_t kLargestTransform = int64_t(1) << 24;

namespace {
struct Transform {
  int64_t length;
  bool inverse, onesided;
};
} // namespace

/// Rows: sample and part of the input; columns: bin and part of the output. A
/// part is real or imaginary, and there may be only the first.
static std::vector<double> transformMatrix(const Transform &t, int64_t samples,
                                           int64_t partsIn, int64_t bins,
                                           int64_t partsOut) {
  std::vector<double> matrix(samples * partsIn * bins * partsOut, 0);
  // Half of the bins of a real signal stand for two each.
  const bool halved = t.inverse && t.onesided;
  const int64_t used = std::min(samples, halved ? t.length / 2 + 1 : t.length);
  const double scale = t.inverse ? 1.0 / static_cast<double>(t.length) : 1;
  for (int64_t s = 0; s < used; ++s)
    for (int64_t k = 0; k < bins; ++k) {
      const double angle = 2 * M_PI * static_cast<double>(s * k % t.length) /
                           static_cast<double>(t.length);
      const bool twice = halved && s > 0 && 2 * s != t.length;
      const double c = (twice ? 2 : 1) * scale * std::cos(angle),
                   i = (twice ? 2 : 1) * scale * std::sin(angle) *
                       (t.inverse ? 1 : -1);
      const auto at = [&](int64_t in, int64_t out) -> double & {
        return matrix[((s * partsIn + in) * bins + k) * partsOut + out];
      };
      at(0, 0) = c;
      if (partsOut == 2)
        at(0, 1) = i;
      if (partsIn == 2)
        at(1, 0) = -i;
      if (partsIn == 2 && partsOut == 2)
        at(1, 1) = c;
    }
  return matrix;
}

/// Along `axis` of a tensor whose last dimension holds the parts.
static Val transformed(NodeContext &c, const Val &x, int64_t axis,
                       const Transform &t) {
  Emitter &e = c.e;
  const int64_t rank = x.getRank(), samples = x.dim(axis),
                partsIn = x.dim(rank - 1);
  const int64_t partsOut = t.inverse && t.onesided ? 1 : 2;
  const int64_t bins = t.onesided && !t.inverse ? t.length / 2 + 1 : t.length;
  if (partsIn != 1 && partsIn != 2)
    c.fail("the last dimension of its input " + shapeText(x.getShape()) +
           " is neither 1 nor 2");
  if (t.length < 1 || t.length > kLargestTransform ||
      samples > kLargestTransform / (partsIn * partsOut * bins))
    c.fail("a transform of " + std::to_string(t.length) +
           " samples is too large");
  SmallVector<int64_t> order, back(rank), shape;
  for (int64_t d = 0; d < rank - 1; ++d)
    if (d != axis)
      order.push_back(d);
  for (const int64_t d : order)
    shape.push_back(x.dim(d));
  order.append({axis, rank - 1});
  for (int64_t d = 0; d < rank; ++d)
    back[order[d]] = d;
  const int64_t columns = samples * partsIn;
  const Val rows =
      e.reshape(e.transpose(x, order),
                {columns ? x.type.getNumElements() / columns : 0, columns});
  std::vector<double> matrix =
      transformMatrix(t, samples, partsIn, bins, partsOut);
  for (double &element : matrix)
    element = nn::roundTo(x.getElementType(), element);
  const Val y = e.matmul(
      rows, nn::Literal(RankedTensorType::get({columns, bins * partsOut},
                                              x.getElementType()),
                        std::move(matrix)));
  shape.append({bins, partsOut});
  return e.transpose(e.reshape(y, shape), back);
}

void importDFT(NodeContext &c) {
  const Val &x = c.floatIn(0);
  const int64_t rank = x.getRank();
  const int64_t given = c.opset >= 20 ? (c.has(2) ? c.scalarInt(2, "axis") : -2)
                                      : c.intAttr("axis", 1);
  const int64_t axis = c.axis(given, rank);
  if (rank < 2 || axis == rank - 1)
    c.fail("it has no axis " + std::to_string(given) + " to transform");
  Transform t;
  t.inverse = c.intAttr("inverse", 0) != 0;
  t.onesided = c.intAttr("onesided", 0) != 0;
  t.length = c.has(1)                  ? c.scalarInt(1, "dft_length")
             : t.inverse && t.onesided ? 2 * (x.dim(axis) - 1)
                                       : x.dim(axis);
  c.out(transformed(c, x, axis, t));
}

/// Frames of the signal, times the window, transformed.
void importSTFT(NodeContext &c) {
  Emitter &e = c.e;
  Val x = c.floatIn(0);
  if (x.getRank() == 2)
    x = e.reshape(x, {x.dim(0), x.dim(1), 1});
  if (x.getRank() != 3)
    c.fail("its signal " + shapeText(x.getShape()) + " is not of rank 3");
  const int64_t step = c.scalarInt(1, "frame_step");
  int64_t length = x.dim(1);
  if (c.has(3))
    length = c.scalarInt(3, "frame_length");
  else if (c.has(2))
    length = c.in(2).type.getNumElements();
  if (step < 1 || length < 1 || length > x.dim(1) ||
      (c.has(2) && c.in(2).getShape() != ArrayRef<int64_t>({length})))
    c.fail("frames of " + std::to_string(length) + " samples every " +
           std::to_string(step) + " do not fit its signal or its window");
  const int64_t frames = (x.dim(1) - length) / step + 1;
  std::vector<int64_t> positions;
  for (int64_t frame = 0; frame < frames; ++frame)
    for (int64_t i = 0; i < length; ++i)
      positions.push_back(frame * step + i);
  const Type i64 = e.i64();
  Val cut = e.gather(x,
                     nn::Literal(RankedTensorType::get({frames, length}, i64),
                                 std::move(positions)),
                     1); // [batch, frames, length, parts]
  if (c.has(2))
    cut = e.mul(cut, e.reshape(c.in(2), {length, 1}));
  c.out(transformed(c, cut, 2, {length, false, c.intAttr("onesided", 1) != 0}));
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

/// sum of a[i] cos(2 pi i n / N)
static void window(NodeContext &c, ArrayRef<double> coefficients) {
  const int64_t size = c.scalarInt(0, "size");
  if (size < 0 || size > kLargestTransform)
    c.fail("its size " + std::to_string(size) + " is impossible");
  const auto span =
      static_cast<double>(c.intAttr("periodic", 1) != 0 ? size : size - 1);
  const Type element = c.typeAttr("output_datatype", ElementType::Float);
  if (!nn::holdsFloats(element))
    c.fail("its output_datatype is not floating-point");
  std::vector<double> values;
  for (int64_t n = 0; n < size; ++n) {
    double sum = 0;
    for (size_t i = 0; i < coefficients.size(); ++i)
      sum += coefficients[i] * std::cos(2 * M_PI * static_cast<double>(i) *
                                        static_cast<double>(n) / span);
    values.push_back(nn::roundTo(element, sum));
  }
  c.out(nn::Literal(RankedTensorType::get({size}, element), values));
}

void importHannWindow(NodeContext &c) { window(c, {0.5, -0.5}); }
void importHammingWindow(NodeContext &c) {
  window(c, {25.0 / 46, 25.0 / 46 - 1});
}
void importBlackmanWindow(NodeContext &c) { window(c, {0.42, -0.5, 0.08}); }

/// Triangles over the bins of a spectrum, evenly spaced in mels.
void importMelWeightMatrix(NodeContext &c) {
  const int64_t bands = c.scalarInt(0, "num_mel_bins"),
                length = c.scalarInt(1, "dft_length"),
                rate = c.scalarInt(2, "sample_rate");
  const double low = c.scalar(3, "lower_edge_hertz"),
               high = c.scalar(4, "upper_edge_hertz");
  const int64_t bins = length / 2 + 1;
  const auto mels = [](double hertz) {
    return 2595 * std::log10(1 + hertz / 700);
  };
  if (bands < 1 || length < 1 || rate < 1 || bands > kLargestTransform / bins ||
      !(low >= 0 && high > low && 2 * high <= static_cast<double>(rate)))
    c.fail("its numbers describe no spectrum");
  const Type element = c.typeAttr("output_datatype", ElementType::Float);
  if (!nn::holdsFloats(element))
    c.fail("its output_datatype is not floating-point");
  const double step = (mels(high) - mels(low)) / static_cast<double>(bands + 2);
  const auto edge = [&](int64_t i) {
    const double hertz =
        700 *
        (std::pow(10, (mels(low) + step * static_cast<double>(i)) / 2595) - 1);
    return static_cast<int64_t>(std::floor(static_cast<double>(length + 1) *
                                           hertz / static_cast<double>(rate)));
  };
  std::vector<double> matrix(bins * bands, 0);
  const auto set = [&](int64_t bin, int64_t band, double value) {
    if (bin < bins)
      matrix[bin * bands + band] = nn::roundTo(element, value);
  };
  for (int64_t band = 0; band < bands; ++band) {
    const int64_t left = edge(band), center = edge(band + 1),
                  right = edge(band + 2);
    if (left == center)
      set(center, band, 1);
    for (int64_t bin = left; bin <= center && left < center; ++bin)
      set(bin, band,
          static_cast<double>(bin - left) / static_cast<double>(center - left));
    for (int64_t bin = center; bin < right; ++bin)
      set(bin, band,
          static_cast<double>(right - bin) /
              static_cast<double>(right - center));
  }
  c.out(nn::Literal(RankedTensorType::get({bins, bands}, element), matrix));
}

} // namespace pipec::onnx
