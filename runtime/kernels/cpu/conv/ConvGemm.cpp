//===- ConvGemm.cpp - convolution as one product per group ----------------===//
//
//   forward          y[o, (n,p)]      = w[o, (c,q)]       x[(c,q), (n,p)]
//   input gradient   dx[c, (n,p)]     = w[(o,q), c]^T     dy[(o,q), (n,p)]
//   weight gradient  dw[o, (c,q)]     = dy[o, (n,p)]      x[(c,q), (n,p)]^T
//
// With stride s the input gradient falls apart into s products per axis, one
// for the input positions of each remainder modulo s: each reads the taps that
// can meet it, and no multiplication is by an inserted zero.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/cpu/conv/ConvGemm.h"
#include "runtime/kernels/cpu/conv/ImageSource.h"

namespace pipec::cpu {
namespace {

/// The window of forward and of the weight gradient.
Window forwardWindow(const ConvShape &s) {
  Window w;
  w.images = s.n;
  for (int i = 0; i < 3; ++i) {
    w.grid[i] = s.out[i];
    w.image[i] = s.in[i];
    w.step[i] = s.stride[i];
    w.count[i] = int(s.kernel[i]);
    for (int64_t q = 0; q < s.kernel[i]; ++q)
      w.shift[i][q] = q * s.dilation[i] - s.lo[i];
  }
  return w;
}

/// The input positions that leave remainder r[i] modulo stride[i], and the
/// output positions they meet.
struct Phase {
  Window window;
  int64_t remainder[3];
  int64_t tap[3][kMaxTaps]; ///< kernel position of each tap of the window

  Phase(const ConvShape &s, const int64_t (&r)[3]) {
    window.images = s.n;
    for (int i = 0; i < 3; ++i) {
      remainder[i] = r[i];
      window.grid[i] = (s.in[i] - r[i] + s.stride[i] - 1) / s.stride[i];
      window.image[i] = s.out[i];
      window.step[i] = 1;
      window.count[i] = 0;
      for (int64_t q = 0; q < s.kernel[i]; ++q) {
        const int64_t reach = r[i] + s.lo[i] - q * s.dilation[i];
        if (reach % s.stride[i])
          continue;
        const int at = window.count[i]++;
        window.shift[i][at] = reach / s.stride[i];
        tap[i][at] = q;
      }
    }
  }
};

/// Left operand of the input gradient: line = input channel of a group,
/// k = (output channel, tap of the phase).
template <typename T> class TurnedWeights final : public PanelSource<T> {
public:
  TurnedWeights(const ConvShape &s, const Phase &phase, const T *w)
      : s(s), phase(phase), w(w) {}

  void pack(T *dst, int64_t width, int64_t first, int64_t count, int64_t k0,
            int64_t kc) const override {
    const Window &v = phase.window;
    const int64_t taps = v.taps(), channels = s.groupIn();
    for (int64_t k = 0; k < kc; ++k) {
      const int64_t o = (k0 + k) / taps, t = (k0 + k) % taps;
      const int64_t tap =
          (phase.tap[0][t / (v.count[1] * v.count[2])] * s.kernel[1] +
           phase.tap[1][t / v.count[2] % v.count[1]]) *
              s.kernel[2] +
          phase.tap[2][t % v.count[2]];
      const T *from = w + (o * channels + first) * s.taps + tap;
      for (int64_t i = 0; i < count; ++i)
        dst[k * width + i] = from[i * s.taps];
      for (int64_t i = count; i < width; ++i)
        dst[k * width + i] = T(0);
    }
  }

private:
  const ConvShape &s;
  const Phase &phase;
  const T *w;
};

constexpr int64_t kOnes[3] = {1, 1, 1}, kZeros[3] = {0, 0, 0};

/// One phase of the input gradient, all groups.
template <typename T>
void inputPhase(const ConvShape &s, const Phase &phase, const T *dy, const T *w,
                T *dx) {
  const int64_t gi = s.groupIn(), go = s.groupOut();
  const int64_t columns = s.n * phase.window.gridPlane();
  for (int64_t g = 0; g < s.groups; ++g) {
    const TurnedWeights<T> a(s, phase, w + g * go * gi * s.taps);
    const ImageSource<T> b(phase.window, dy + g * go * s.outPlane,
                           s.o * s.outPlane);
    const ImageSink<T> c(phase.window, dx + g * gi * s.inPlane, s.in, s.stride,
                         phase.remainder, s.c * s.inPlane);
    Gemm<T>{gi, columns, go * phase.window.taps(), a, b, c, false}.run();
  }
}

} // namespace

bool convGemmTakes(const ConvShape &s) {
  for (int i = 0; i < 3; ++i)
    if (s.kernel[i] > kMaxTaps || s.in[i] <= 0 || s.out[i] <= 0)
      return false;
  return s.groupIn() >= 3 && s.groupOut() >= 3;
}

template <typename T>
void convGemmForward(const ConvShape &s, const T *x, const T *w, T *y) {
  const Window window = forwardWindow(s);
  const int64_t gi = s.groupIn(), go = s.groupOut(), k = gi * s.taps;
  for (int64_t g = 0; g < s.groups; ++g) {
    const MatrixSource<T> a(w + g * go * k, k, true);
    const ImageSource<T> b(window, x + g * gi * s.inPlane, s.c * s.inPlane);
    const ImageSink<T> c(window, y + g * go * s.outPlane, s.out, kOnes, kZeros,
                         s.o * s.outPlane);
    Gemm<T>{go, s.n * s.outPlane, k, a, b, c, false}.run();
  }
}

template <typename T>
void convGemmBackwardInput(const ConvShape &s, const T *dy, const T *w, T *dx) {
  int64_t r[3];
  for (r[0] = 0; r[0] < s.stride[0]; ++r[0])
    for (r[1] = 0; r[1] < s.stride[1]; ++r[1])
      for (r[2] = 0; r[2] < s.stride[2]; ++r[2])
        if (r[0] < s.in[0] && r[1] < s.in[1] && r[2] < s.in[2])
          inputPhase(s, Phase(s, r), dy, w, dx);
}

template <typename T>
void convGemmBackwardWeight(const ConvShape &s, const T *x, const T *dy, T *dw,
                            bool accumulate) {
  const Window window = forwardWindow(s);
  const int64_t gi = s.groupIn(), go = s.groupOut(), n = gi * s.taps;
  for (int64_t g = 0; g < s.groups; ++g) {
    const ChannelLines<T> a(dy + g * go * s.outPlane, s.outPlane,
                            s.o * s.outPlane);
    const ImageSource<T> image(window, x + g * gi * s.inPlane, s.c * s.inPlane);
    const ImageLines<T> b(image);
    const MatrixSink<T> c(dw + g * go * n, n);
    Gemm<T>{go, n, s.n * s.outPlane, a,
            b,  c, accumulate,       ChannelLines<T>::periodOf(s.outPlane)}
        .run();
  }
}

#define PIPEC_INSTANTIATE(T)                                                   \
  template void convGemmForward(const ConvShape &, const T *, const T *, T *); \
  template void convGemmBackwardInput(const ConvShape &, const T *, const T *, \
                                      T *);                                    \
  template void convGemmBackwardWeight(const ConvShape &, const T *,           \
                                       const T *, T *, bool);
PIPEC_INSTANTIATE(float)
PIPEC_INSTANTIATE(double)
#undef PIPEC_INSTANTIATE

} // namespace pipec::cpu
