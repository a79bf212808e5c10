//===- ConvDirect.cpp - convolution by its definition ---------------------===//

#include "runtime/kernels/cpu/conv/ConvDirect.h"
#include "runtime/kernels/cpu/Parallel.h"

namespace pipec::cpu {
namespace {

/// Calls body(x offset, y offset, count, x step) for every run of output
/// positions along the last axis that tap (i, j, k) connects to the input.
/// Offsets are positions within a plane.
template <typename Body>
void forEachRun(const ConvShape &s, int64_t i, int64_t j, int64_t k,
                const Body &body) {
  const ConvShape::Range rz = s.reach(0, i), ry = s.reach(1, j),
                         rx = s.reach(2, k);
  if (rx.first >= rx.last)
    return;
  const int64_t ix = rx.first * s.stride[2] + k * s.dilation[2] - s.lo[2];
  for (int64_t z = rz.first; z < rz.last; ++z) {
    const int64_t iz = z * s.stride[0] + i * s.dilation[0] - s.lo[0];
    for (int64_t y = ry.first; y < ry.last; ++y) {
      const int64_t iy = y * s.stride[1] + j * s.dilation[1] - s.lo[1];
      body((iz * s.in[1] + iy) * s.in[2] + ix,
           (z * s.out[1] + y) * s.out[2] + rx.first, rx.last - rx.first,
           s.stride[2]);
    }
  }
}

/// Calls body(tap number, i, j, k) for every kernel position.
template <typename Body> void forEachTap(const ConvShape &s, const Body &body) {
  int64_t tap = 0;
  for (int64_t i = 0; i < s.kernel[0]; ++i)
    for (int64_t j = 0; j < s.kernel[1]; ++j)
      for (int64_t k = 0; k < s.kernel[2]; ++k, ++tap)
        body(tap, i, j, k);
}

/// Zeroes one channel of one image; with a blocked layout the first channel of
/// the last block also clears the lanes that no channel owns.
template <typename T>
void clearChannel(const Layout &l, T *t, int64_t n, int64_t c) {
  T *plane = t + l.at(n, c);
  const int64_t step = l.step();
  for (int64_t p = 0; p < l.plane; ++p)
    plane[p * step] = T(0);
  if (!l.blocked || c != l.channels - 1)
    return;
  for (int64_t lane = c % kChannelBlock + 1; lane < kChannelBlock; ++lane)
    for (int64_t p = 0; p < l.plane; ++p)
      plane[p * step + lane - c % kChannelBlock] = T(0);
}

} // namespace

template <typename T>
void convDirectForward(const ConvShape &s, const T *x, const T *w, T *y) {
  const int64_t gi = s.groupIn(), go = s.groupOut();
  const int64_t xs = s.x.step(), ys = s.y.step();
  parallelFor(s.n * s.o, 1, [&](int64_t item) {
    const int64_t n = item / s.o, o = item % s.o, c0 = o / go * gi;
    T *out = y + s.y.at(n, o);
    clearChannel(s.y, y, n, o);
    for (int64_t c = 0; c < gi; ++c) {
      const T *in = x + s.x.at(n, c0 + c);
      const T *taps = w + (o * gi + c) * s.taps;
      forEachTap(s, [&](int64_t tap, int64_t i, int64_t j, int64_t k) {
        const T f = taps[tap];
        forEachRun(s, i, j, k,
                   [&](int64_t px, int64_t py, int64_t count, int64_t stride) {
                     for (int64_t t = 0; t < count; ++t)
                       out[(py + t) * ys] += f * in[(px + t * stride) * xs];
                   });
      });
    }
  });
}

template <typename T>
void convDirectBackwardInput(const ConvShape &s, const T *dy, const T *w,
                             T *dx) {
  const int64_t gi = s.groupIn(), go = s.groupOut();
  const int64_t xs = s.x.step(), ys = s.y.step();
  parallelFor(s.n * s.c, 1, [&](int64_t item) {
    const int64_t n = item / s.c, c = item % s.c, o0 = c / gi * go;
    T *out = dx + s.x.at(n, c);
    clearChannel(s.x, dx, n, c);
    for (int64_t o = o0; o < o0 + go; ++o) {
      const T *in = dy + s.y.at(n, o);
      const T *taps = w + (o * gi + c % gi) * s.taps;
      forEachTap(s, [&](int64_t tap, int64_t i, int64_t j, int64_t k) {
        const T f = taps[tap];
        forEachRun(s, i, j, k,
                   [&](int64_t px, int64_t py, int64_t count, int64_t stride) {
                     for (int64_t t = 0; t < count; ++t)
                       out[(px + t * stride) * xs] += f * in[(py + t) * ys];
                   });
      });
    }
  });
}

template <typename T>
void convDirectBackwardWeight(const ConvShape &s, const T *x, const T *dy,
                              T *dw, bool accumulate) {
  const int64_t gi = s.groupIn(), go = s.groupOut();
  const int64_t xs = s.x.step(), ys = s.y.step();
  parallelFor(s.o * gi, 1, [&](int64_t item) {
    const int64_t o = item / gi, c = o / go * gi + item % gi;
    T *taps = dw + item * s.taps;
    forEachTap(s, [&](int64_t tap, int64_t i, int64_t j, int64_t k) {
      T sum = T(0);
      for (int64_t n = 0; n < s.n; ++n) {
        const T *in = x + s.x.at(n, c), *grad = dy + s.y.at(n, o);
        forEachRun(s, i, j, k,
                   [&](int64_t px, int64_t py, int64_t count, int64_t stride) {
                     T run = T(0);
                     for (int64_t t = 0; t < count; ++t)
                       run += grad[(py + t) * ys] * in[(px + t * stride) * xs];
                     sum += run;
                   });
      }
      taps[tap] = accumulate ? taps[tap] + sum : sum;
    });
  });
}

#define PIPEC_INSTANTIATE(T)                                                   \
  template void convDirectForward(const ConvShape &, const T *, const T *,     \
                                  T *);                                        \
  template void convDirectBackwardInput(const ConvShape &, const T *,          \
                                        const T *, T *);                       \
  template void convDirectBackwardWeight(const ConvShape &, const T *,         \
                                         const T *, T *, bool);
PIPEC_INSTANTIATE(float)
PIPEC_INSTANTIATE(double)
#undef PIPEC_INSTANTIATE

} // namespace pipec::cpu
