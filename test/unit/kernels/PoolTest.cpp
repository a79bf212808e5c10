//===- PoolTest.cpp - pipec_max_pool, pipec_avg_pool ----------------------===//

#include "Check.h"

using namespace pipec::test;

namespace {

using Dims = std::vector<int64_t>;

struct Case {
  int64_t n, c;
  Dims in, out, kernel, stride, dilation, lo, hi;
};

// `out` is given: some rows have ceil_mode windows that hang over the edge.
const Case kCases[] = {
    {2, 3, {8, 8}, {4, 4}, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
    {2, 19, {9, 7}, {5, 4}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {1, 16, {12, 12}, {6, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {1, 5, {10, 10}, {5, 5}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {0, 0}}, // ceil
    {1, 5, {10, 9}, {4, 4}, {3, 2}, {3, 2}, {1, 1}, {1, 0}, {0, 0}},
    {2, 4, {9, 9}, {3, 3}, {2, 2}, {2, 2}, {3, 3}, {1, 1}, {1, 0}},
    {2, 4, {7, 7}, {1, 1}, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {0, 0}}, // global
    {1, 2, {5, 6}, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, {17}, {9}, {3}, {2}, {1}, {1}, {1}},
    {1,
     18,
     {4, 5, 6},
     {2, 2, 3},
     {2, 3, 2},
     {2, 2, 2},
     {1, 1, 1},
     {0, 1, 0},
     {0, 0, 0}},
    {1, 2, {4}, {3}, {1}, {2}, {1}, {2}, {0}}, // a window of padding alone
    {0, 3, {8, 8}, {4, 4}, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
};

int64_t product(const Dims &d) {
  int64_t p = 1;
  for (const int64_t x : d)
    p *= x;
  return p;
}

template <typename T> class Pooling {
public:
  Pooling(const Case &t, bool blocked, bool includePad)
      : t(t), blocked(blocked) {
    d.dtype = sizeof(T) == 8 ? PIPEC_F64 : PIPEC_F32;
    d.spatial_rank = int32_t(t.in.size());
    d.count_include_pad = includePad;
    d.layout = blocked;
    d.n = t.n;
    d.c = t.c;
    for (size_t i = 0; i < t.in.size(); ++i) {
      d.in[i] = t.in[i], d.out[i] = t.out[i], d.kernel[i] = t.kernel[i];
      d.stride[i] = t.stride[i], d.dilation[i] = t.dilation[i];
      d.pad_lo[i] = t.lo[i], d.pad_hi[i] = t.hi[i];
    }
    ins = product(t.in), outs = product(t.out);
  }

  int64_t size(int64_t plane) const {
    return t.n * plane * (blocked ? (t.c + 15) / 16 * 16 : t.c);
  }
  int64_t at(int64_t n, int64_t c, int64_t p, int64_t plane) const {
    return blocked
               ? ((n * ((t.c + 15) / 16) + c / 16) * plane + p) * 16 + c % 16
               : (n * t.c + c) * plane + p;
  }

  /// The taps of window `p`: their flat positions, and how many lie in the
  /// padded input.
  std::vector<int64_t> window(int64_t p, int64_t &padded) const {
    std::vector<int64_t> taps;
    padded = 0;
    for (int64_t q = 0; q < product(t.kernel); ++q) {
      int64_t pr = p, qr = q, flat = 0, scale = 1;
      bool inside = true, counted = true;
      for (int i = d.spatial_rank - 1; i >= 0; --i) {
        const int64_t x = pr % t.out[i] * t.stride[i] +
                          qr % t.kernel[i] * t.dilation[i] - t.lo[i];
        inside &= x >= 0 && x < t.in[i];
        counted &= x < t.in[i] + t.hi[i];
        flat += x * scale;
        scale *= t.in[i];
        pr /= t.out[i];
        qr /= t.kernel[i];
      }
      padded += counted;
      if (inside)
        taps.push_back(flat);
    }
    return taps;
  }

  Buffer<T> random(int64_t plane, uint64_t seed) const {
    Buffer<T> b(size(plane));
    Random(seed).fill(b);
    return b;
  }

  void checkMax() {
    const Buffer<T> x = random(ins, 1), dy = random(outs, 2);
    Buffer<T> y(size(outs)), dx(size(ins)), bare(size(outs));
    Buffer<int32_t> index(size(outs));
    pipec_max_pool(&d, x.data(), y.data(), index.data());
    pipec_max_pool(&d, x.data(), bare.data(), nullptr);
    expectSameBits(y, bare, "maximum without indices");
    pipec_max_pool_grad(&d, dy.data(), index.data(), dx.data());
    std::vector<Sum> want(size(ins));
    for (int64_t n = 0; n < t.n; ++n)
      for (int64_t c = 0; c < t.c; ++c)
        for (int64_t p = 0; p < outs; ++p) {
          int64_t padded, best = -1;
          for (const int64_t tap : window(p, padded))
            if (best < 0 || x[at(n, c, tap, ins)] > x[at(n, c, best, ins)])
              best = tap;
          const int64_t o = at(n, c, p, outs);
          ASSERT_EQ(index[o], best);
          ASSERT_EQ(y[o], best < 0 ? -std::numeric_limits<T>::infinity()
                                   : x[at(n, c, best, ins)]);
          if (best >= 0)
            want[at(n, c, best, ins)].add(dy[o]);
        }
    compare(want, dx, "gradient of the maximum");
    EXPECT_TRUE(y.guardIntact() && index.guardIntact() && dx.guardIntact());
  }

  void checkAverage() {
    const Buffer<T> x = random(ins, 3), dy = random(outs, 4);
    Buffer<T> y(size(outs)), dx(size(ins));
    pipec_avg_pool(&d, x.data(), y.data());
    pipec_avg_pool_grad(&d, dy.data(), dx.data());
    std::vector<Sum> wantY(size(outs)), wantX(size(ins));
    for (int64_t n = 0; n < t.n; ++n)
      for (int64_t c = 0; c < t.c; ++c)
        for (int64_t p = 0; p < outs; ++p) {
          int64_t padded;
          const std::vector<int64_t> taps = window(p, padded);
          const double count =
              double(d.count_include_pad ? padded : taps.size());
          const int64_t o = at(n, c, p, outs);
          for (const int64_t tap : taps) {
            wantY[o].add(x[at(n, c, tap, ins)] / count);
            wantX[at(n, c, tap, ins)].add(dy[o] / count);
          }
        }
    compare(wantY, y, "average", outs);
    compare(wantX, dx, "gradient of the average");
    EXPECT_TRUE(y.guardIntact() && dx.guardIntact());
  }

private:
  /// Channels only; the lanes without a channel are the caller's.
  void compare(const std::vector<Sum> &want, const Buffer<T> &got,
               const char *what, int64_t plane = 0) {
    plane = plane ? plane : ins;
    for (int64_t n = 0; n < t.n; ++n)
      for (int64_t c = 0; c < t.c; ++c)
        for (int64_t p = 0; p < plane; ++p) {
          const int64_t i = at(n, c, p, plane);
          ASSERT_LE(std::fabs(got[i] - want[i].value),
                    tolerance<T>() * want[i].magnitude)
              << what << " " << n << " " << c << " " << p;
        }
  }

  const Case &t;
  bool blocked;
  PipecPool d = {};
  int64_t ins, outs;
};

class Pool : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(Pool, AgreesWithTheDefinition) {
  const auto [index, blocked] = GetParam();
  forThreadCounts([&](int threads) {
    for (const bool include : {false, true}) {
      Pooling<float> f(kCases[index], blocked, include);
      f.checkMax();
      f.checkAverage();
      Pooling<double> g(kCases[index], blocked, include);
      g.checkMax();
      g.checkAverage();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, Pool,
    testing::Combine(testing::Range(0, int(std::size(kCases))),
                     testing::Bool()));

PipecPool row(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  PipecPool d = {};
  d.spatial_rank = 1;
  d.n = d.c = 1;
  d.in[0] = in, d.out[0] = out, d.kernel[0] = kernel, d.stride[0] = stride;
  d.dilation[0] = 1;
  return d;
}

/// Rows of few windows are taken whole, too, and nothing beyond them is read.
TEST(Pool, NarrowRowsReadAndWriteNothingBeyond) {
  Guarded memory(1024);
  for (int64_t kernel = 1; kernel <= 3; ++kernel)
    for (int64_t stride = 1; stride <= 3; ++stride)
      for (int64_t out = 1; out <= 40; ++out) {
        const int64_t in = (out - 1) * stride + kernel;
        float *x = memory.last(in);
        for (int64_t i = 0; i < in; ++i)
          x[i] = float((i * 37 + 11) % 101) - 50;
        std::vector<float> y(out + 1, -99);
        std::vector<int32_t> index(out + 1, -99);
        const PipecPool d = row(in, out, kernel, stride);
        pipec_max_pool(&d, x, y.data(), index.data());
        for (int64_t o = 0; o < out; ++o) {
          const float *first = x + o * stride;
          const float *best = std::max_element(first, first + kernel);
          ASSERT_EQ(y[o], *best) << in << " " << kernel << " " << stride;
          ASSERT_EQ(index[o], best - x);
        }
        ASSERT_EQ(y[out], -99);
        ASSERT_EQ(index[out], -99);
      }
}

TEST(Pool, MaximumTakesNanAndTheFirstOfEquals) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const PipecPool d = row(9, 3, 3, 3);
  const float x[] = {1, nan, 5, 2, 2, 1, -inf, -inf, -inf};
  float y[3];
  int32_t index[3];
  pipec_max_pool(&d, x, y, index);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(index[0], 1);
  EXPECT_EQ(y[1], 2);
  EXPECT_EQ(index[1], 3);
  EXPECT_EQ(y[2], -inf);
  EXPECT_EQ(index[2], 6);
}

} // namespace
