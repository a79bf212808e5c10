//===- ConvRows.cpp - convolution of few channels per group ---------------===//

#include "runtime/kernels/cpu/conv/ConvRows.h"
#include "runtime/kernels/cpu/Parallel.h"
#include "runtime/kernels/cpu/conv/RowBand.h"
#include "runtime/kernels/cpu/gemm/Gemm.h"

namespace pipec::cpu {
namespace {

/// Rows that one output row may add up, and output columns done at a time.
constexpr int64_t kMaxTerms = 256, kSegment = 256;

/// The thread's scratch: a band of rows (which should stay in the first-level
/// cache, but may be larger when it has to), sums or weights, a row of results.
constexpr int64_t kSums = kMaxTerms * kDotLanes;
constexpr int64_t kResult = kSegment + 2 * kRowSlack;
constexpr int64_t kBandRoom = kScratchElements - kSums - kResult;
constexpr int64_t kBandAim = 6144;

template <typename T> T *bandMemory() { return threadScratch<T>(); }
template <typename T> T *sumMemory() { return threadScratch<T>() + kBandRoom; }
template <typename T> T *rowMemory() {
  return threadScratch<T>() + kBandRoom + kSums;
}

/// Rows of a band so that `perRow` rows serve an output row after the first,
/// which takes `first`: as many as fit, at least `first`.
int64_t bandRows(const RowBand &one, int64_t first, int64_t perRow,
                 int64_t outputs) {
  const int64_t wanted = first + (outputs - 1) * perRow;
  const int64_t room = kBandAim / (one.planes * one.row());
  return std::min(wanted, std::max(first, room));
}

/// The rows of x that forward and the weight gradient read.
RowBand forwardBand(const ConvShape &s) {
  const int64_t reach = (s.kernel[2] - 1) * s.dilation[2];
  RowBand b{s.groupIn() * s.kernel[0], 1, s.stride[2],
            std::min(kSegment, s.out[2]) + reach / s.stride[2]};
  b.rows =
      bandRows(b, (s.kernel[1] - 1) * s.dilation[1] + 1, s.stride[1], s.out[1]);
  return b;
}

/// floor(a / b) for b > 0.
int64_t floorDivide(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((-a - 1) / b + 1);
}

/// How the input gradient meets outputs along axis a: input position
/// r + stride * t meets output position t + shift for tap q, if shift is whole.
int64_t firstShift(const ConvShape &s, int a) {
  return floorDivide(s.lo[a] - (s.kernel[a] - 1) * s.dilation[a], s.stride[a]);
}
int64_t lastShift(const ConvShape &s, int a) {
  return floorDivide(s.stride[a] - 1 + s.lo[a], s.stride[a]);
}
bool meets(const ConvShape &s, int a, int64_t r, int64_t q, int64_t &shift) {
  const int64_t reach = r + s.lo[a] - q * s.dilation[a];
  shift = floorDivide(reach, s.stride[a]);
  return shift * s.stride[a] == reach;
}

/// Input positions of remainder 0: the most of any remainder.
int64_t positions(const ConvShape &s, int a) {
  return (s.in[a] - 1) / s.stride[a] + 1;
}

/// The rows of dy that the input gradient reads.
RowBand gradientBand(const ConvShape &s) {
  const int64_t span = lastShift(s, 2) - firstShift(s, 2);
  RowBand b{s.groupOut() * s.kernel[0], 1, 1,
            std::min(kSegment, positions(s, 2)) + span};
  b.rows =
      bandRows(b, lastShift(s, 1) - firstShift(s, 1) + 1, 1, positions(s, 1));
  return b;
}

/// Calls body(first, count) for pieces of [0, n).
template <typename Body>
void forEachPiece(int64_t n, int64_t piece, const Body &body) {
  for (int64_t first = 0; first < n; first += piece)
    body(first, std::min(piece, n - first));
}

/// The rows of a sum; all advance alike from one output row to the next.
template <typename T> struct Terms {
  const T *rows[kMaxTerms];
  int64_t count = 0;
  void advance(int64_t by) {
    for (int64_t t = 0; t < count; ++t)
      rows[t] += by;
  }
};

/// Calls body(output row, first column, columns, terms) for all output rows of
/// a group whose input starts at `x`; terms are in the order of the weights.
template <typename T, typename Body>
void forEachOutputRow(const ConvShape &s, const RowBand &band, const T *x,
                      const Body &body) {
  const int64_t bandOutputs =
      (band.rows - (s.kernel[1] - 1) * s.dilation[1] - 1) / s.stride[1] + 1;
  T *memory = bandMemory<T>();
  const auto piece = [&](int64_t z, int64_t y, int64_t rows, int64_t column,
                         int64_t columns) {
    Terms<T> terms;
    for (int64_t lane = 0; lane < band.planes; ++lane) {
      const int64_t c = lane / s.kernel[0], i = lane % s.kernel[0];
      const int64_t iz = z * s.stride[0] + i * s.dilation[0] - s.lo[0];
      T *to = memory + lane * band.plane();
      band.fill(
          to,
          iz >= 0 && iz < s.in[0] ? x + (c * s.in[0] + iz) * s.in[1] * s.in[2]
                                  : nullptr,
          s.in[1], s.in[2], y * s.stride[1] - s.lo[1],
          column * s.stride[2] - s.lo[2],
          (rows - 1) * s.stride[1] + (s.kernel[1] - 1) * s.dilation[1] + 1);
      for (int64_t j = 0; j < s.kernel[1]; ++j)
        for (int64_t k = 0; k < s.kernel[2]; ++k) {
          const int64_t at = k * s.dilation[2];
          terms.rows[terms.count++] = to + j * s.dilation[1] * band.row() +
                                      at % s.stride[2] * band.part() +
                                      at / s.stride[2];
        }
    }
    for (int64_t r = 0; r < rows; ++r) {
      body(z * s.out[1] + y + r, column, columns, terms);
      terms.advance(s.stride[1] * band.row());
    }
  };
  forEachPiece(s.out[2], kSegment, [&](int64_t column, int64_t columns) {
    for (int64_t z = 0; z < s.out[0]; ++z)
      forEachPiece(s.out[1], bandOutputs, [&](int64_t y, int64_t rows) {
        piece(z, y, rows, column, columns);
      });
  });
}

/// The input gradient of one group of one image.
template <typename T> class GroupGradient {
public:
  GroupGradient(const ConvShape &s, const RowBand &band, const T *dy,
                const T *w, T *dx)
      : s(s), band(band), dy(dy), w(w), dx(dx) {}

  void run() {
    const int64_t reach = lastShift(s, 1) - firstShift(s, 1);
    forEachPiece(positions(s, 2), kSegment, [&](int64_t x, int64_t columns) {
      for (int64_t z = 0; z < s.in[0]; ++z)
        forEachPiece(positions(s, 1), band.rows - reach,
                     [&](int64_t y, int64_t rows) {
                       fill(z, y, rows + reach, x);
                       for (int64_t ry = 0; ry < s.stride[1]; ++ry)
                         for (int64_t rx = 0; rx < s.stride[2]; ++rx)
                           phase(z, y, rows, x, columns, ry, rx);
                     });
    });
  }

private:
  /// The output plane that tap i of the first axis brings to plane z, or -1.
  int64_t planeOf(int64_t z, int64_t i) const {
    int64_t shift;
    return meets(s, 0, z, i, shift) && shift >= 0 && shift < s.out[0] ? shift
                                                                      : -1;
  }

  void fill(int64_t z, int64_t y, int64_t rows, int64_t x) const {
    for (int64_t lane = 0; lane < band.planes; ++lane) {
      const int64_t o = lane / s.kernel[0], oz = planeOf(z, lane % s.kernel[0]);
      band.fill(
          bandMemory<T>() + lane * band.plane(),
          oz < 0 ? nullptr : dy + (o * s.out[0] + oz) * s.out[1] * s.out[2],
          s.out[1], s.out[2], y + firstShift(s, 1), x + firstShift(s, 2), rows);
    }
  }

  /// Rows ry + stride * [y, y + rows), columns rx + stride * [x, x + columns).
  void phase(int64_t z, int64_t y, int64_t rows, int64_t x, int64_t columns,
             int64_t ry, int64_t rx) const {
    Terms<T> terms;
    collect(ry, rx, terms);
    const int64_t step = s.stride[2], gi = s.groupIn();
    columns = std::min(columns, (s.in[2] - rx - 1 + step) / step - x);
    T *result = rowMemory<T>();
    for (int64_t r = 0; r < rows && (y + r) * s.stride[1] + ry < s.in[1];
         ++r, terms.advance(band.row()))
      for (int64_t c = 0; c < gi && columns > 0; ++c) {
        T *to = dx + c * s.inPlane +
                (z * s.in[1] + (y + r) * s.stride[1] + ry) * s.in[2] +
                x * step + rx;
        rowKernels<T>().filter(step == 1 ? to : result, columns, terms.rows,
                               sumMemory<T>() + c * kMaxTerms, terms.count);
        if (step != 1)
          rowKernels<T>().putRun(to, step, result, columns, false);
      }
  }

  /// The terms of a phase at its first row; the weights of input channel c go
  /// to sumMemory() + c * kMaxTerms.
  void collect(int64_t ry, int64_t rx, Terms<T> &terms) const {
    const int64_t gi = s.groupIn();
    for (int64_t lane = 0; lane < band.planes; ++lane)
      for (int64_t j = 0; j < s.kernel[1]; ++j)
        for (int64_t k = 0; k < s.kernel[2]; ++k) {
          int64_t yShift, xShift;
          if (!meets(s, 1, ry, j, yShift) || !meets(s, 2, rx, k, xShift))
            continue;
          const int64_t o = lane / s.kernel[0], i = lane % s.kernel[0];
          const int64_t tap = (i * s.kernel[1] + j) * s.kernel[2] + k;
          for (int64_t c = 0; c < gi; ++c)
            sumMemory<T>()[c * kMaxTerms + terms.count] =
                w[(o * gi + c) * s.taps + tap];
          terms.rows[terms.count++] = bandMemory<T>() + lane * band.plane() +
                                      (yShift - firstShift(s, 1)) * band.row() +
                                      xShift - firstShift(s, 2);
        }
  }

  const ConvShape &s;
  const RowBand &band;
  const T *dy, *w;
  T *dx;
};

/// Sums the lanes of a dot product in a fixed tree.
template <typename T> T total(const T *lanes) {
  T sum[kDotLanes];
  std::copy_n(lanes, kDotLanes, sum);
  for (int64_t width = kDotLanes / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l)
      sum[l] += sum[l + width];
  return sum[0];
}

} // namespace

bool convRowsTakes(const ConvShape &s) {
  // Products win on many channels, and on images narrower than a vector, which
  // they merge.
  const int64_t gi = s.groupIn(), go = s.groupOut();
  if (go > 8 || gi > 16 || (s.in[2] < 12 && go >= 4 && gi >= 4))
    return false;
  return s.in[2] > 0 && s.out[2] > 0 &&
         std::max(gi, go) * s.taps <= kMaxTerms &&
         forwardBand(s).elements() <= kBandRoom &&
         gradientBand(s).elements() <= kBandRoom;
}

template <typename T>
void convRowsForward(const ConvShape &s, const T *x, const T *w, T *y) {
  const int64_t gi = s.groupIn(), go = s.groupOut();
  const RowBand band = forwardBand(s);
  parallelFor(s.n * s.groups, 1, [&](int64_t item) {
    const int64_t n = item / s.groups, g = item % s.groups;
    T *out = y + (n * s.o + g * go) * s.outPlane;
    forEachOutputRow(s, band, x + (n * s.c + g * gi) * s.inPlane,
                     [&](int64_t row, int64_t column, int64_t columns,
                         const Terms<T> &terms) {
                       T *to = out + row * s.out[2] + column;
                       for (int64_t o = 0; o < go; ++o)
                         rowKernels<T>().filter(
                             to + o * s.outPlane, columns, terms.rows,
                             w + (g * go + o) * terms.count, terms.count);
                     });
  });
}

template <typename T>
void convRowsBackwardInput(const ConvShape &s, const T *dy, const T *w, T *dx) {
  const int64_t gi = s.groupIn(), go = s.groupOut();
  const RowBand band = gradientBand(s);
  parallelFor(s.n * s.groups, 1, [&](int64_t item) {
    const int64_t n = item / s.groups, g = item % s.groups;
    GroupGradient<T>(s, band, dy + (n * s.o + g * go) * s.outPlane,
                     w + g * go * gi * s.taps,
                     dx + (n * s.c + g * gi) * s.inPlane)
        .run();
  });
}

template <typename T>
void convRowsBackwardWeight(const ConvShape &s, const T *x, const T *dy, T *dw,
                            bool accumulate) {
  const int64_t gi = s.groupIn(), go = s.groupOut(), terms = gi * s.taps;
  // Outputs of a group share the rows of x, if their sums fit.
  const int64_t together = go * terms <= kMaxTerms && s.groups >= 8 ? go : 1;
  const RowBand band = forwardBand(s);
  parallelFor(s.o / together, 1, [&](int64_t item) {
    const int64_t first = item * together;
    T *sums = sumMemory<T>();
    std::fill_n(sums, together * terms * kDotLanes, T(0));
    for (int64_t n = 0; n < s.n; ++n)
      forEachOutputRow(s, band, x + (n * s.c + first / go * gi) * s.inPlane,
                       [&](int64_t row, int64_t column, int64_t columns,
                           const Terms<T> &rows) {
                         const T *grad = dy + (n * s.o + first) * s.outPlane +
                                         row * s.out[2] + column;
                         for (int64_t o = 0; o < together; ++o)
                           rowKernels<T>().dots(sums + o * terms * kDotLanes,
                                                grad + o * s.outPlane, columns,
                                                rows.rows, terms);
                       });
    for (int64_t t = 0; t < together * terms; ++t) {
      T &to = dw[first * terms + t];
      const T sum = total(sums + t * kDotLanes);
      to = accumulate ? to + sum : sum;
    }
  });
}

#define PIPEC_INSTANTIATE(T)                                                   \
  template void convRowsForward(const ConvShape &, const T *, const T *, T *); \
  template void convRowsBackwardInput(const ConvShape &, const T *, const T *, \
                                      T *);                                    \
  template void convRowsBackwardWeight(const ConvShape &, const T *,           \
                                       const T *, T *, bool);
PIPEC_INSTANTIATE(float)
PIPEC_INSTANTIATE(double)
#undef PIPEC_INSTANTIATE

} // namespace pipec::cpu
