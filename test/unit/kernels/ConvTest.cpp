//===- ConvTest.cpp - pipec_conv_* ----------------------------------------===//

#include "Check.h"

#include <array>

using namespace pipec::test;

namespace {

using Dims = std::vector<int64_t>;

struct Case {
  int64_t n, c, o, groups;
  Dims in, kernel, stride, dilation, lo, hi;
};

/// Rows of the parameterised tests: sizes, then what makes them special.
const Case kCases[] = {
    // 2-D, ordinary
    {2, 3, 8, 1, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 16, 16, 1, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {3, 32, 48, 1, {7, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 32, 64, 1, {8, 8}, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
    {2, 3, 24, 1, {23, 23}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}},
    {3, 64, 32, 1, {14, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 48, 40, 1, {14, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 80, 64, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 48, 32, 1, {30, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 64, 100, 1, {19, 21}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 16, 16, 1, {70, 5}, {5, 1}, {1, 1}, {1, 1}, {2, 0}, {2, 0}},
    // unequal pads, strides, dilation
    {2, 5, 7, 1, {11, 9}, {3, 2}, {2, 3}, {1, 1}, {0, 1}, {2, 0}},
    {1, 4, 6, 1, {12, 12}, {3, 3}, {1, 1}, {2, 3}, {2, 3}, {2, 3}},
    {2, 16, 32, 1, {13, 15}, {3, 3}, {2, 1}, {2, 2}, {2, 0}, {1, 3}},
    {2, 17, 33, 1, {10, 11}, {4, 4}, {1, 1}, {1, 1}, {1, 2}, {2, 1}},
    {1, 3, 4, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {-1, 0}, {0, -2}},
    {1, 16, 16, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {-1, 0}, {0, -2}},
    {1, 16, 16, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {4, 4}, {4, 4}},
    {1, 2, 2, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 16, 16, 1, {4, 4}, {2, 2}, {3, 3}, {1, 1}, {0, 0}, {0, 0}},
    {1, 16, 16, 1, {9, 9}, {1, 1}, {2, 2}, {1, 1}, {1, 1}, {0, 0}},
    // 3x3 large enough for Winograd: odd sizes, ragged channels, any padding
    {1, 33, 19, 1, {17, 23}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 40, 24, 1, {13, 16}, {3, 3}, {1, 1}, {1, 1}, {0, 2}, {2, 0}},
    {9, 32, 32, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 16, 16, 1, {9, 150}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {3, 17, 16, 1, {20, 12}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 20, 48, 1, {12, 14}, {3, 3}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {2, 24, 32, 1, {16, 15}, {3, 3}, {1, 1}, {1, 1}, {-1, 1}, {1, -1}},
    {1, 16, 16, 1, {129, 131}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    // groups, depthwise, channel multiplier
    {2, 32, 32, 2, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 12, 18, 3, {9, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 32, 32, 32, {12, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 19, 19, 19, {12, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {1, 16, 32, 16, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 64, 64, 4, {6, 6}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 24, 24, 24, {15, 15}, {5, 5}, {1, 1}, {2, 2}, {4, 4}, {4, 4}},
    {2, 16, 16, 4, {13, 40}, {3, 3}, {1, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 24, 48, 12, {14, 15}, {3, 3}, {2, 3}, {1, 2}, {2, 1}, {0, 2}},
    {1, 6, 6, 6, {70, 600}, {3, 5}, {2, 2}, {1, 1}, {1, 2}, {1, 2}},
    {3, 1, 20, 1, {28, 28}, {5, 5}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 1, 4, 1, {20, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1,
     8,
     8,
     8,
     {6, 13, 14},
     {3, 3, 3},
     {1, 2, 1},
     {2, 1, 1},
     {2, 1, 1},
     {2, 1, 1}},
    {1, 5, 5, 5, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {-1, 1}, {1, -1}},
    {1, 2, 2, 2, {5, 30000}, {1, 9}, {1, 1}, {1, 1000}, {0, 0}, {0, 0}},
    {1, 2, 2, 1, {40, 50}, {30, 20}, {1, 1}, {1, 1}, {0, 0}, {0, 0}}, // 1-D and
                                                                      // 3-D
    {2, 8, 16, 1, {50}, {5}, {1}, {1}, {2}, {2}},
    {3, 16, 16, 1, {33}, {3}, {2}, {2}, {1}, {2}},
    {2, 20, 20, 20, {40}, {4}, {1}, {1}, {3}, {0}},
    {1,
     3,
     5,
     1,
     {5, 6, 7},
     {3, 3, 3},
     {1, 1, 1},
     {1, 1, 1},
     {1, 1, 1},
     {1, 1, 1}},
    {2,
     16,
     16,
     1,
     {4, 5, 6},
     {2, 3, 1},
     {2, 1, 2},
     {1, 1, 1},
     {0, 1, 0},
     {1, 1, 0}},
    // nothing to do
    {0, 4, 4, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
};

int64_t product(const Dims &d) {
  int64_t p = 1;
  for (const int64_t x : d)
    p *= x;
  return p;
}

struct Config {
  int32_t dtype, xLayout, yLayout;
};

PipecConv describe(const Case &t, const Config &f) {
  PipecConv d = {};
  d.dtype = f.dtype;
  d.x_layout = f.xLayout;
  d.y_layout = f.yLayout;
  d.spatial_rank = int32_t(t.in.size());
  d.groups = int32_t(t.groups);
  d.n = t.n;
  d.c = t.c;
  d.o = t.o;
  for (size_t i = 0; i < t.in.size(); ++i) {
    d.in[i] = t.in[i];
    d.kernel[i] = t.kernel[i];
    d.stride[i] = t.stride[i];
    d.dilation[i] = t.dilation[i];
    d.pad_lo[i] = t.lo[i];
    d.pad_hi[i] = t.hi[i];
    d.out[i] =
        (t.in[i] + t.lo[i] + t.hi[i] - t.dilation[i] * (t.kernel[i] - 1) - 1) /
            t.stride[i] +
        1;
  }
  return d;
}

/// Calls body(y index, x index, w index) for every product of the convolution;
/// indices into plain tensors.
template <typename Body>
void forEachProduct(const PipecConv &d, const Body &body) {
  const int r = d.spatial_rank;
  const Dims in(d.in, d.in + r), out(d.out, d.out + r),
      ker(d.kernel, d.kernel + r);
  const int64_t outs = product(out), taps = product(ker), ins = product(in);
  const int64_t gi = d.c / d.groups, go = d.o / d.groups;
  for (int64_t p = 0; p < outs; ++p)
    for (int64_t q = 0; q < taps; ++q) {
      int64_t pr = p, qr = q, at = 0, scale = 1;
      bool inside = true;
      for (int i = r - 1; i >= 0; --i) {
        const int64_t x = pr % out[i] * d.stride[i] +
                          qr % ker[i] * d.dilation[i] - d.pad_lo[i];
        inside &= x >= 0 && x < in[i];
        at += x * scale;
        scale *= in[i];
        pr /= out[i];
        qr /= ker[i];
      }
      if (inside)
        for (int64_t n = 0; n < d.n; ++n)
          for (int64_t o = 0; o < d.o; ++o)
            for (int64_t c = 0; c < gi; ++c)
              body((n * d.o + o) * outs + p,
                   (n * d.c + o / go * gi + c) * ins + at,
                   (o * gi + c) * taps + q);
    }
}

/// A tensor in a layout, from and to its plain form.
struct Form {
  bool blocked;
  int64_t n, c, plane;
  int64_t size() const {
    return n * plane * (blocked ? (c + 15) / 16 * 16 : c);
  }
  int64_t at(int64_t n, int64_t c, int64_t p) const {
    return blocked ? ((n * ((this->c + 15) / 16) + c / 16) * plane + p) * 16 +
                         c % 16
                   : (n * this->c + c) * plane + p;
  }
  template <typename Body> void forEach(const Body &body) const {
    int64_t plain = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < c; ++j)
        for (int64_t p = 0; p < plane; ++p, ++plain)
          body(plain, at(i, j, p));
  }
};

template <typename T> Buffer<T> toForm(const Form &f, const Buffer<T> &plain) {
  Buffer<T> out(f.size());
  for (int64_t i = 0; i < out.size(); ++i)
    out[i] = 0;
  f.forEach([&](int64_t from, int64_t to) { out[to] = plain[from]; });
  return out;
}

/// The plain form; lanes without a channel must be zero.
template <typename T>
Buffer<T> toPlain(const Form &f, const Buffer<T> &formed) {
  Buffer<T> out(f.n * f.c * f.plane);
  std::vector<bool> owned(formed.size());
  f.forEach([&](int64_t to, int64_t from) {
    out[to] = formed[from];
    owned[from] = true;
  });
  for (int64_t i = 0; i < formed.size(); ++i)
    if (!owned[i]) {
      EXPECT_EQ(formed[i], T(0)) << "padding lane " << i;
      if (formed[i] != T(0))
        break;
    }
  return out;
}

/// One convolution with its results by the definition. Layouts are the
/// caller's choice at every run.
template <typename T> struct Problem {
  const Case &t;
  PipecConv d;
  int64_t inPlane, outPlane;
  Buffer<T> x, w, dy;         // plain
  std::vector<Sum> y, dx, dw; // expected, plain

  explicit Problem(const Case &t)
      : t(t), d(describe(t, {sizeof(T) == 8 ? PIPEC_F64 : PIPEC_F32, 0, 0})),
        inPlane(product(t.in)),
        outPlane(product(Dims(d.out, d.out + d.spatial_rank))),
        x(t.n * t.c * inPlane), w(t.o * (t.c / t.groups) * product(t.kernel)),
        dy(t.n * t.o * outPlane), y(dy.size()), dx(x.size()), dw(w.size()) {
    Random random(t.c * 131 + t.o);
    random.fill(x);
    random.fill(w);
    random.fill(dy);
    forEachProduct(d, [&](int64_t iy, int64_t ix, int64_t iw) {
      y[iy].add(double(x[ix]) * w[iw]);
      dx[ix].add(double(dy[iy]) * w[iw]);
      dw[iw].add(double(x[ix]) * dy[iy]);
    });
  }

  const std::vector<Sum> &expected(int which) const {
    return which == 0 ? y : which == 1 ? dx : dw;
  }

  /// Runs one kind with everything made at this thread count; the result is
  /// plain. Bit 0 of `layouts`: x blocked, bit 1: y blocked.
  Buffer<T> run(int which, int layouts, bool accumulate = false) const {
    PipecConv call = d;
    call.x_layout = layouts & 1;
    call.y_layout = layouts >> 1;
    call.accumulate = accumulate;
    const Form xf{call.x_layout != 0, t.n, t.c, inPlane};
    const Form yf{call.y_layout != 0, t.n, t.o, outPlane};
    pipec_prepare_conv(&call, which);
    Buffer<char> scratch(pipec_conv_scratch_bytes(&call, which));
    const Buffer<T> fx = toForm(xf, x), fy = toForm(yf, dy);
    Buffer<T> result(which == 0   ? yf.size()
                     : which == 1 ? xf.size()
                                  : w.size());
    if (accumulate)
      for (int64_t i = 0; i < result.size(); ++i)
        result[i] = T(1);
    if (which == PIPEC_CONV_FORWARD)
      pipec_conv_forward(&call, fx.data(), w.data(), result.data(),
                         scratch.data());
    else if (which == PIPEC_CONV_BACKWARD_INPUT)
      pipec_conv_backward_input(&call, fy.data(), w.data(), result.data(),
                                scratch.data());
    else
      pipec_conv_backward_weight(&call, fx.data(), fy.data(), result.data(),
                                 scratch.data());
    EXPECT_TRUE(scratch.guardIntact()) << "scratch overrun";
    EXPECT_TRUE(result.guardIntact()) << "result overrun";
    pipec_release_conv(&call);
    EXPECT_EQ(call.prepared, nullptr);
    return which == 0   ? toPlain(yf, result)
           : which == 1 ? toPlain(xf, result)
                        : std::move(result);
  }

  /// One kind and layout: right, and the same for every thread count.
  void check(int which, int layouts) const {
    const char *names[] = {"forward", "input gradient", "weight gradient"};
    SCOPED_TRACE(testing::Message() << "layouts " << layouts);
    std::unique_ptr<Buffer<T>> first;
    forThreadCounts([&](int threads) {
      Buffer<T> got = run(which, layouts);
      if (!first) {
        expectNear(expected(which), got.data(), names[which]);
        first = std::make_unique<Buffer<T>>(std::move(got));
      } else {
        expectSameBits(*first, got, names[which]);
      }
    });
  }

  void checkAccumulation(int layouts) const {
    std::vector<Sum> plusOne = dw;
    for (Sum &s : plusOne)
      s.add(1);
    expectNear(plusOne, run(2, layouts, true).data(),
               "accumulated weight gradient");
  }
};

class Conv : public testing::TestWithParam<std::tuple<int, int>> {};

template <typename T> void checkCase(int index) {
  const Case &t = kCases[index];
  SCOPED_TRACE(testing::Message()
               << "n" << t.n << " c" << t.c << " o" << t.o << " g" << t.groups
               << " in" << testing::PrintToString(t.in) << " kernel"
               << testing::PrintToString(t.kernel));
  const Problem<T> p(t);
  for (int layouts = 0; layouts < 4; ++layouts) {
    for (int which = 0; which < 3; ++which)
      p.check(which, layouts);
    p.checkAccumulation(layouts);
  }
}

TEST_P(Conv, AgreesWithTheDefinition) {
  const auto [index, type] = GetParam();
  type == PIPEC_F64 ? checkCase<double>(index) : checkCase<float>(index);
}

std::string caseName(const testing::TestParamInfo<Conv::ParamType> &info) {
  const auto [index, type] = info.param;
  return "case" + std::to_string(index) + (type == PIPEC_F64 ? "_f64" : "_f32");
}

INSTANTIATE_TEST_SUITE_P(
    All, Conv,
    testing::Combine(testing::Range(0, int(std::size(kCases))),
                     testing::Values(int(PIPEC_F32), int(PIPEC_F64))),
    caseName);

TEST(ConvScratch, DoesNotDependOnThreads) {
  for (const Case &t : kCases)
    for (int which = 0; which < 3; ++which) {
      PipecConv d = describe(t, {PIPEC_F32, PIPEC_PLAIN, PIPEC_PLAIN});
      const int64_t bytes = pipec_conv_scratch_bytes(&d, which);
      EXPECT_GE(bytes, 0);
      forThreadCounts([&](int threads) {
        EXPECT_EQ(bytes, pipec_conv_scratch_bytes(&d, which));
        pipec_prepare_conv(&d, which);
        EXPECT_EQ(bytes, pipec_conv_scratch_bytes(&d, which));
        pipec_release_conv(&d);
      });
    }
}

/// Sums of rows take whole vectors, whose last may be half outside: it is not
/// read.
TEST(Conv, RowsReadNothingBeyond) {
  Guarded image(4096), gradient(4096);
  for (int64_t width = 1; width <= 40; width += width < 20 ? 1 : 5)
    for (int64_t kernel : {1, 3, 5})
      for (int64_t stride : {1, 2, 3}) {
        PipecConv d = {};
        d.spatial_rank = 2, d.groups = 1, d.n = d.c = d.o = 1;
        d.in[0] = 6, d.in[1] = width;
        int64_t out = 1;
        for (int a = 0; a < 2; ++a) {
          d.kernel[a] = kernel, d.stride[a] = stride, d.dilation[a] = 1;
          d.pad_lo[a] = d.pad_hi[a] = kernel / 2;
          d.out[a] = (d.in[a] + kernel / 2 * 2 - kernel) / stride + 1;
          out *= d.out[a];
        }
        const int64_t in = 6 * width;
        ASSERT_EQ(pipec_conv_path(&d, PIPEC_CONV_FORWARD), PIPEC_CONV_ROWS);
        std::vector<float> w(kernel * kernel, 1), more(in + out, 0);
        for (bool last : {false, true}) {
          float *x = last ? image.last(in) : image.first();
          float *dy = last ? gradient.last(out) : gradient.first();
          std::fill_n(x, in, 1.0f), std::fill_n(dy, out, 1.0f);
          pipec_conv_forward(&d, x, w.data(), dy, more.data());
          pipec_conv_backward_weight(&d, x, dy, w.data(), more.data());
          pipec_conv_backward_input(&d, dy, w.data(), x, more.data());
        }
      }
}

TEST(ConvPrepare, ServesAllKindsAndRepeatedCalls) {
  Problem<float> p(kCases[1]);
  for (int repeat = 0; repeat < 2; ++repeat)
    for (int which = 0; which < 3; ++which)
      pipec_prepare_conv(&p.d, which);
  Buffer<char> scratch(std::max({pipec_conv_scratch_bytes(&p.d, 0),
                                 pipec_conv_scratch_bytes(&p.d, 1),
                                 pipec_conv_scratch_bytes(&p.d, 2)}));
  for (int repeat = 0; repeat < 2; ++repeat) {
    Buffer<float> y(p.dy.size()), dx(p.x.size()), dw(p.w.size());
    pipec_conv_forward(&p.d, p.x.data(), p.w.data(), y.data(), scratch.data());
    pipec_conv_backward_weight(&p.d, p.x.data(), p.dy.data(), dw.data(),
                               scratch.data());
    pipec_conv_backward_input(&p.d, p.dy.data(), p.w.data(), dx.data(),
                              scratch.data());
    expectNear(p.y, y.data(), "forward");
    expectNear(p.dx, dx.data(), "input gradient");
    expectNear(p.dw, dw.data(), "weight gradient");
  }
  pipec_release_conv(&p.d);
}

/// A not-finite input reaches at least the outputs whose window holds it, and
/// at most those of the same tile.
TEST(Conv, NotFinitePropagates) {
  for (const Case &t : {kCases[1], kCases[8]}) { // as a product, by Winograd
    Problem<float> p(t);
    const int64_t row = 2, column = 4;
    p.x[(3 * t.in[0] + row) * t.in[1] + column] =
        std::numeric_limits<float>::quiet_NaN(); // channel 3 of image 0
    for (const int layouts : {0, 3}) {
      const Buffer<float> y = p.run(PIPEC_CONV_FORWARD, layouts);
      for (int64_t i = 0; i < y.size(); ++i) {
        const int64_t at = i % p.outPlane;
        const int64_t far = std::max(std::abs(at / p.d.out[1] - row),
                                     std::abs(at % p.d.out[1] - column));
        const bool image0 = i < t.o * p.outPlane;
        if (image0 && far <= 1)
          EXPECT_TRUE(std::isnan(y[i])) << i;
        if (!image0 || far > 2)
          EXPECT_FALSE(std::isnan(y[i])) << i;
      }
    }
  }
}

} // namespace
