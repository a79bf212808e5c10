//===- Contract.cpp - evaluation of matmul and convolutions ---------------===//
#include "dialects/nn/eval/Kernels.h"

using namespace mlir;

namespace pipec::nn::eval {

static Literal matmul(MatmulOp op, const Context &c) {
  const RankedTensorType type = resultType(op);
  const int64_t rank = type.getRank();
  const int64_t m = type.getDimSize(rank - 2), n = type.getDimSize(rank - 1);
  const int64_t k = c[0].getShape()[op.getTransposeA() ? rank - 2 : rank - 1];
  const std::vector<double> a = c[0].doubles(), b = c[1].doubles();
  const int64_t aRow = op.getTransposeA() ? 1 : k,
                aStep = op.getTransposeA() ? m : 1;
  const int64_t bColumn = op.getTransposeB() ? k : 1,
                bStep = op.getTransposeB() ? 1 : n;
  std::vector<double> y(type.getNumElements(), 0);
  const int64_t batches = m * n == 0 ? 0 : type.getNumElements() / (m * n);
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = 0; p < k; ++p) {
        const double left = a[batch * m * k + i * aRow + p * aStep];
        for (int64_t j = 0; j < n; ++j)
          y[(batch * m + i) * n + j] +=
              left * b[batch * k * n + p * bStep + j * bColumn];
      }
  return c.floats(type, std::move(y));
}

namespace {
/// The geometry of a convolution, and the walk over its multiply-adds.
struct Convolution {
  SmallVector<int64_t> x, w, y; ///< shapes
  ArrayRef<int64_t> strides, dilations, low;
  int64_t groups;

  /// f(x position, w position, y position) for every product, in the order
  /// image, output channel, output place, input channel, tap.
  template <typename F> void forEachProduct(F f) const {
    const size_t spatial = strides.size();
    const int64_t perGroup = w[1], outPerGroup = w[0] / groups;
    const SmallVector<int64_t> taps(w.begin() + 2, w.end());
    const SmallVector<int64_t> places(y.begin() + 2, y.end());
    const SmallVector<int64_t> sizes(x.begin() + 2, x.end());
    const int64_t tapCount = product(taps), placeCount = product(places),
                  plane = product(sizes);
    // Where each tap of each place reads; -1 in the padding.
    std::vector<int64_t> reads(placeCount * tapCount);
    for (int64_t place = 0; place < placeCount; ++place)
      for (int64_t tap = 0; tap < tapCount; ++tap) {
        int64_t at = 0, p = place, t = tap, step = 1;
        for (size_t d = spatial; d-- > 0;) {
          const int64_t i = (p % places[d]) * strides[d] - low[d] +
                            (t % taps[d]) * dilations[d];
          p /= places[d], t /= taps[d];
          if (i < 0 || i >= sizes[d] || at < 0)
            at = -1;
          else
            at += i * step, step *= sizes[d];
        }
        reads[place * tapCount + tap] = at;
      }
    for (int64_t n = 0; n < x[0]; ++n)
      for (int64_t o = 0; o < w[0]; ++o)
        for (int64_t place = 0; place < placeCount; ++place)
          for (int64_t i = 0; i < perGroup; ++i)
            for (int64_t tap = 0; tap < tapCount; ++tap) {
              const int64_t at = reads[place * tapCount + tap];
              if (at < 0)
                continue;
              const int64_t channel = o / outPerGroup * perGroup + i;
              f((n * x[1] + channel) * plane + at,
                (o * perGroup + i) * tapCount + tap,
                (n * w[0] + o) * placeCount + place);
            }
  }
  static int64_t product(ArrayRef<int64_t> sizes) {
    int64_t p = 1;
    for (int64_t size : sizes)
      p *= size;
    return p;
  }
};
} // namespace

template <typename Op>
static Convolution geometry(Op op, ArrayRef<int64_t> x, ArrayRef<int64_t> w,
                            ArrayRef<int64_t> y) {
  return {SmallVector<int64_t>(x), SmallVector<int64_t>(w),
          SmallVector<int64_t>(y), op.getStrides(),
          op.getDilations(),       op.getPadsLow(),
          int64_t(op.getGroups())};
}

FailureOr<Results> contraction(Operation *op, const Context &c) {
  if (auto matmulOp = dyn_cast<MatmulOp>(op))
    return Results{matmul(matmulOp, c)};
  const bool isConv = isa<ConvOp, ConvGradInputOp, ConvGradWeightOp>(op);
  if (!isConv)
    return Results{};
  const RankedTensorType type = resultType(op);
  const std::vector<double> a = c[0].doubles(), b = c[1].doubles();
  std::vector<double> out(type.getNumElements(), 0);
  if (auto conv = dyn_cast<ConvOp>(op))
    geometry(conv, c[0].getShape(), c[1].getShape(), type.getShape())
        .forEachProduct(
            [&](int64_t x, int64_t w, int64_t y) { out[y] += a[x] * b[w]; });
  else if (auto input = dyn_cast<ConvGradInputOp>(op))
    geometry(input, type.getShape(), c[1].getShape(), c[0].getShape())
        .forEachProduct(
            [&](int64_t x, int64_t w, int64_t y) { out[x] += a[y] * b[w]; });
  else
    geometry(cast<ConvGradWeightOp>(op), c[0].getShape(), type.getShape(),
             c[1].getShape())
        .forEachProduct(
            [&](int64_t x, int64_t w, int64_t y) { out[w] += a[x] * b[y]; });
  return Results{c.floats(type, std::move(out))};
}

} // namespace pipec::nn::eval
