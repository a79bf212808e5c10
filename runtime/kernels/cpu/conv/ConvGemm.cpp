//===- ConvGemm.cpp - convolution as one product per group ----------------===//
//
//   forward          y[o, (n,p)]      = w[o, (c,q)]       x[(c,q), (n,p)]
//   input gradient   dx[c, (n,p)]     = w[(q,o), c]^T     dy[(q,o), (n,p)]
//   weight gradient  dw[o, (c,q)]     = dy[o, (n,p)]      x[(c,q), (n,p)]^T
//
// With stride s the input gradient falls apart into s products per axis, one
// for the input positions of each remainder modulo s: each reads the taps that
// can meet it, and no multiplication is by an inserted zero.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/cpu/conv/ConvGemm.h"
#include "runtime/kernels/cpu/Parallel.h"
#include "runtime/kernels/cpu/conv/ImageSource.h"
#include "runtime/kernels/cpu/level/RowKernels.h"

namespace pipec::cpu {
namespace {

/// One of the products that make up convolution `s`.
template <typename T>
void product(const ConvShape &s, int64_t m, int64_t n, int64_t k,
             const PanelSource<T> &a, const PanelSource<T> &b,
             const TileSink<T> &c, bool add = false, int64_t period = 0) {
  const int64_t work = s.n * s.outPlane * s.weights();
  Gemm<T>{m, n, k, a, b, c, add, period, std::max<int64_t>(work, 1)}.run();
}

/// Positions of a window that reads each source position once, in order, as one
/// long row: fewer stretches.
Window inOneRow(Window w) {
  for (int i = 0; i < 3; ++i)
    if (w.count[i] != 1 || w.step[i] != 1 || w.shift[i][0] != 0 ||
        w.grid[i] != w.image[i])
      return w;
  w.grid[2] = w.image[2] = w.gridPlane();
  w.grid[0] = w.grid[1] = w.image[0] = w.image[1] = 1;
  return w;
}

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
  return inOneRow(w);
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

  /// Kernel position of tap t of the window.
  int64_t tapOf(const ConvShape &s, int64_t t) const {
    const int *count = window.count;
    return (tap[0][t / (count[1] * count[2])] * s.kernel[1] +
            tap[1][t / count[2] % count[1]]) *
               s.kernel[2] +
           tap[2][t % count[2]];
  }
};

/// Calls body(phase) for every phase that has positions.
template <typename Body>
void forEachPhase(const ConvShape &s, const Body &body) {
  int64_t r[3];
  for (r[0] = 0; r[0] < std::min(s.stride[0], s.in[0]); ++r[0])
    for (r[1] = 0; r[1] < std::min(s.stride[1], s.in[1]); ++r[1])
      for (r[2] = 0; r[2] < std::min(s.stride[2], s.in[2]); ++r[2])
        body(Phase(s, r));
}

bool strided(const ConvShape &s) {
  return s.stride[0] > 1 || s.stride[1] > 1 || s.stride[2] > 1;
}

/// Elements of the turned weights of one group.
int64_t turnedElements(const ConvShape &s) {
  return roundUp(s.groupOut() * s.groupIn() * s.taps, kChannelBlock);
}

/// Columns of the product of a phase, in whole vectors.
int64_t compactRow(const ConvShape &s, const Window &w) {
  return roundUp(s.n * w.gridPlane(), kChannelBlock);
}

/// Left operands of all phases, one after another: turned[t][o][c] =
/// w[o][c][tap t of the phase].
template <typename T>
void turnWeights(const ConvShape &s, const T *w, T *turned) {
  const int64_t channels = s.groupIn(), outputs = s.groupOut();
  int64_t order[kMaxKernel], count = 0;
  forEachPhase(s, [&](const Phase &p) {
    for (int64_t t = 0; t < p.window.taps(); ++t)
      order[count++] = p.tapOf(s, t);
  });
  parallelFor(outputs, 4, [&](int64_t o) {
    T *all = threadScratch<T>();
    constexpr int64_t lines = 16;
    static_assert(lines * kMaxKernel <= kScratchElements);
    for (int64_t c = 0; c < channels; c += lines) {
      const int64_t width = std::min(lines, channels - c);
      microKernels<T>().packLines(all, lines, w + (o * channels + c) * s.taps,
                                  s.taps, width, s.taps);
      for (int64_t t = 0; t < count; ++t)
        std::copy_n(all + order[t] * lines, width,
                    turned + (t * outputs + o) * channels + c);
    }
  });
}

/// Positions of a phase to their places in the input gradient of a group.
template <typename T>
void scatterPhase(const ConvShape &s, const Phase &phase, const T *compact,
                  T *dx) {
  const Window &w = phase.window;
  const int64_t row = compactRow(s, w);
  parallelFor(s.groupIn() * s.n, 1, [&](int64_t item) {
    const int64_t c = item / s.n, n = item % s.n;
    const T *from = compact + c * row + n * w.gridPlane();
    T *plane = dx + n * s.c * s.inPlane + c * s.inPlane;
    for (int64_t z = 0; z < w.grid[0]; ++z)
      for (int64_t y = 0; y < w.grid[1]; ++y, from += w.grid[2]) {
        const int64_t iz = z * s.stride[0] + phase.remainder[0];
        const int64_t iy = y * s.stride[1] + phase.remainder[1];
        rowKernels<T>().putRun(plane + (iz * s.in[1] + iy) * s.in[2] +
                                   phase.remainder[2],
                               s.stride[2], from, w.grid[2], false);
      }
  });
}

/// One phase of the input gradient of one group, given its turned weights;
/// through `compact` when the positions lie apart.
template <typename T>
void inputPhase(const ConvShape &s, const Phase &phase, const T *dy,
                const T *turned, T *dx, T *compact) {
  const Window window = inOneRow(phase.window);
  const int64_t channels = s.groupIn(), k = s.groupOut() * window.taps();
  const int64_t columns = s.n * window.gridPlane();
  const MatrixSource<T> a(turned, channels, false);
  const ImageSource<T> b(window, dy, s.o * s.outPlane, s.groupOut());
  if (!strided(s)) {
    const ImageSink<T> c(window, dx, s.c * s.inPlane);
    return product<T>(s, channels, columns, k, a, b, c);
  }
  const MatrixSink<T> c(compact, compactRow(s, window));
  product<T>(s, channels, columns, k, a, b, c);
  scatterPhase(s, phase, compact, dx);
}

/// The weight gradient of 1 x 1 kernels with more inputs than outputs, turned:
/// the larger operand is then the one that is read in place.
bool turnsGradient(const ConvShape &s) {
  return s.taps == 1 && s.groupIn() > s.groupOut() && !strided(s) &&
         s.inPlane == s.outPlane && s.lo[0] == 0 && s.lo[1] == 0 &&
         s.lo[2] == 0;
}

template <typename T>
void turnedWeightGradient(const ConvShape &s, const T *x, const T *dy, T *dw,
                          bool accumulate, T *turned) {
  const int64_t gi = s.groupIn(), go = s.groupOut();
  const MicroKernels<T> &u = microKernels<T>();
  if (accumulate)
    u.transpose(turned, go, dw, gi, go, gi);
  const ChannelLines<T> a(x, s.inPlane, s.c * s.inPlane);
  const ChannelLines<T> b(dy, s.outPlane, s.o * s.outPlane);
  const MatrixSink<T> c(turned, go);
  product<T>(s, gi, go, s.n * s.outPlane, a, b, c, accumulate,
             ChannelLines<T>::periodOf(s.outPlane));
  u.transpose(dw, gi, turned, go, gi, go);
}

} // namespace

bool convGemmTakes(const ConvShape &s) {
  for (int i = 0; i < 3; ++i)
    if (s.kernel[i] > kMaxTaps || s.in[i] <= 0 || s.out[i] <= 0)
      return false;
  return s.taps <= kMaxKernel;
}

template <typename T>
void convGemmForward(const ConvShape &s, const T *x, const T *w, T *y) {
  const Window window = forwardWindow(s);
  const int64_t gi = s.groupIn(), go = s.groupOut(), k = gi * s.taps;
  for (int64_t g = 0; g < s.groups; ++g) {
    const MatrixSource<T> a(w + g * go * k, k, true);
    const ImageSource<T> b(window, x + g * gi * s.inPlane, s.c * s.inPlane);
    const ImageSink<T> c(window, y + g * go * s.outPlane, s.o * s.outPlane);
    product<T>(s, go, s.n * s.outPlane, k, a, b, c);
  }
}

int64_t convGemmScratchElements(const ConvShape &s, PipecConvKind which) {
  if (which == PIPEC_CONV_FORWARD)
    return 0;
  if (which == PIPEC_CONV_BACKWARD_WEIGHT)
    return turnsGradient(s) ? turnedElements(s) : 0;
  int64_t elements = 0;
  if (strided(s))
    forEachPhase(s, [&](const Phase &p) {
      elements = std::max(elements, s.groupIn() * compactRow(s, p.window));
    });
  return elements + (s.taps > 1 ? turnedElements(s) : 0);
}

template <typename T>
void convGemmBackwardInput(const ConvShape &s, const T *dy, const T *w, T *dx,
                           T *scratch) {
  bool gaps = false; // positions that no output reads
  forEachPhase(s, [&](const Phase &p) { gaps |= p.window.taps() == 0; });
  if (gaps)
    parallelRanges(s.n * s.c * s.inPlane, 16384, [&](int64_t lo, int64_t hi) {
      std::fill(dx + lo, dx + hi, T(0));
    });
  const int64_t gi = s.groupIn(), go = s.groupOut();
  for (int64_t g = 0; g < s.groups; ++g) {
    const T *turned = w + g * go * gi * s.taps; // as they are, for one tap
    T *compact = scratch;
    if (s.taps > 1) {
      turnWeights(s, turned, scratch);
      turned = scratch;
      compact += turnedElements(s);
    }
    forEachPhase(s, [&](const Phase &p) {
      if (p.window.taps() > 0)
        inputPhase(s, p, dy + g * go * s.outPlane, turned,
                   dx + g * gi * s.inPlane, compact);
      turned += p.window.taps() * go * gi;
    });
  }
}

template <typename T>
void convGemmBackwardWeight(const ConvShape &s, const T *x, const T *dy, T *dw,
                            bool accumulate, T *scratch) {
  const Window window = forwardWindow(s);
  const int64_t gi = s.groupIn(), go = s.groupOut(), n = gi * s.taps;
  for (int64_t g = 0; g < s.groups; ++g) {
    if (turnsGradient(s)) {
      turnedWeightGradient(s, x + g * gi * s.inPlane, dy + g * go * s.outPlane,
                           dw + g * go * n, accumulate, scratch);
      continue;
    }
    const ChannelLines<T> a(dy + g * go * s.outPlane, s.outPlane,
                            s.o * s.outPlane);
    const ImageSource<T> image(window, x + g * gi * s.inPlane, s.c * s.inPlane);
    const ImageLines<T> b(image);
    const MatrixSink<T> c(dw + g * go * n, n);
    product<T>(s, go, n, s.n * s.outPlane, a, b, c, accumulate,
               ChannelLines<T>::periodOf(s.outPlane));
  }
}

#define PIPEC_INSTANTIATE(T)                                                   \
  template void convGemmForward(const ConvShape &, const T *, const T *, T *); \
  template void convGemmBackwardInput(const ConvShape &, const T *, const T *, \
                                      T *, T *);                               \
  template void convGemmBackwardWeight(const ConvShape &, const T *,           \
                                       const T *, T *, bool, T *);
PIPEC_INSTANTIATE(float)
PIPEC_INSTANTIATE(double)
#undef PIPEC_INSTANTIATE

} // namespace pipec::cpu
