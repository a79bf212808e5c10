//===- Pool.cpp - maximum and average pooling and their gradients ---------===//
//
// Work is cut by planes (image and channel, or channel block), so a gradient
// plane is written by one thread in a fixed order.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/cpu/Parallel.h"
#include "runtime/kernels/cpu/Spatial.h"
#include "runtime/kernels/cpu/level/RowKernels.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace {

constexpr int64_t kBlock = 16;

struct Pool : pipec::cpu::Spatial {
  int64_t hi[3] = {}, planes;
  int lanes;

  explicit Pool(const PipecPool &d) : Spatial(d) {
    for (int i = 0; i < d.spatial_rank; ++i)
      hi[3 - d.spatial_rank + i] = d.pad_hi[i];
    lanes = d.layout == PIPEC_BLOCKED ? kBlock : 1;
    planes = d.n * ((d.c + lanes - 1) / lanes);
  }

  int64_t grain() const { return 8192 / (outPlane * lanes + 1) + 1; }

  /// The taps [first, last) of axis `a` at output position p that lie in the
  /// input, and the number that lie in the padded input.
  struct Taps {
    int64_t start, first, last, padded;
  };
  Taps taps(int a, int64_t p) const {
    const int64_t start = p * stride[a] - lo[a];
    const auto below = [&](int64_t limit) { // taps q with start + q*dil < limit
      const int64_t room = limit - start;
      return room <= 0 ? int64_t(0)
                       : std::min(kernel[a], (room - 1) / dilation[a] + 1);
    };
    return {start, below(0), std::max(below(in[a]), below(0)),
            below(in[a] + hi[a])};
  }
};

/// Calls body(out position, taps of the three axes) in row-major order.
template <typename Body> void forEachWindow(const Pool &p, const Body &body) {
  int64_t at = 0;
  for (int64_t z = 0; z < p.out[0]; ++z) {
    const Pool::Taps tz = p.taps(0, z);
    for (int64_t y = 0; y < p.out[1]; ++y) {
      const Pool::Taps ty = p.taps(1, y);
      for (int64_t x = 0; x < p.out[2]; ++x, ++at)
        body(at, tz, ty, p.taps(2, x));
    }
  }
}

/// Calls body(flat input position) for the taps of one window, in order.
template <typename Body>
void forEachTap(const Pool &p, const Pool::Taps &z, const Pool::Taps &y,
                const Pool::Taps &x, const Body &body) {
  for (int64_t i = z.first; i < z.last; ++i)
    for (int64_t j = y.first; j < y.last; ++j) {
      const int64_t row = ((z.start + i * p.dilation[0]) * p.in[1] + y.start +
                           j * p.dilation[1]) *
                              p.in[2] +
                          x.start;
      for (int64_t k = x.first; k < x.last; ++k)
        body(row + k * p.dilation[2]);
    }
}

template <typename T, int L> struct MaxWindow {
  T best[L];
  int32_t where[L];

  MaxWindow(const Pool &p, const Pool::Taps &z, const Pool::Taps &y,
            const Pool::Taps &x, const T *plane) {
    std::fill_n(best, L, -std::numeric_limits<T>::infinity());
    std::fill_n(where, L, -1);
    forEachTap(p, z, y, x, [&](int64_t from) {
      for (int l = 0; l < L; ++l) {
        const T v = plane[from * L + l];
        // A NaN takes over and stays; the first tap beats "none".
        const bool take = v > best[l] || v != v || where[l] < 0;
        best[l] = take ? v : best[l];
        where[l] = take ? int32_t(from) : where[l];
      }
    });
  }
};

/// Rows of a window that many positions side by side have alike.
constexpr int64_t kMaxTerms = 64;

/// Output positions [first, last) of the last axis whose taps all lie inside.
void insideOf(const Pool &p, int64_t &first, int64_t &last) {
  first = p.lo[2] > 0 ? (p.lo[2] - 1) / p.stride[2] + 1 : 0;
  const int64_t room =
      p.in[2] + p.lo[2] - (p.kernel[2] - 1) * p.dilation[2] - 1;
  last = room < 0 ? 0 : std::min(p.out[2], room / p.stride[2] + 1);
  first = std::min(first, p.out[2]);
  last = std::max(first, last);
}

/// Positions [first, last) of an output row of a plain plane, none of which
/// meets the border along the row.
template <typename T>
void maxRow(const Pool &p, const Pool::Taps &z, const Pool::Taps &y,
            int64_t first, int64_t last, const T *x, T *best, int32_t *where) {
  const T *rows[kMaxTerms];
  int32_t at[kMaxTerms];
  int64_t terms = 0;
  const int64_t column = first * p.stride[2] - p.lo[2];
  const Pool::Taps all{column, 0, p.kernel[2], 0};
  forEachTap(p, z, y, all, [&](int64_t from) {
    rows[terms] = x + from;
    at[terms++] = int32_t(from);
  });
  constexpr int64_t kPiece = 64;
  int32_t aside[kPiece];
  for (; first < last; first += kPiece) {
    const int64_t n = std::min(kPiece, last - first);
    pipec::cpu::rowKernels<T>().maximum(best + first,
                                        where ? where + first : aside, n, rows,
                                        at, terms, p.stride[2]);
    for (int64_t t = 0; t < terms; ++t) {
      rows[t] += kPiece * p.stride[2];
      at[t] += int32_t(kPiece * p.stride[2]);
    }
  }
}

template <typename T, int L>
void maxPlane(const Pool &p, const T *x, T *y, int32_t *index) {
  int64_t first = 0, last = 0; // positions that maxRow takes
  if (L == 1 && p.kernel[0] * p.kernel[1] * p.kernel[2] <= kMaxTerms)
    insideOf(p, first, last);
  int64_t at = 0;
  for (int64_t i = 0; i < p.out[0]; ++i)
    for (int64_t j = 0; j < p.out[1]; ++j, at += p.out[2]) {
      const Pool::Taps tz = p.taps(0, i), ty = p.taps(1, j);
      const bool row = tz.first < tz.last && ty.first < ty.last;
      if (row && first < last)
        maxRow<T>(p, tz, ty, first, last, x, y + at,
                  index ? index + at : nullptr);
      for (int64_t k = 0; k < p.out[2]; ++k) {
        if (row && k == first)
          k = last;
        if (k == p.out[2])
          break;
        const MaxWindow<T, L> w(p, tz, ty, p.taps(2, k), x);
        std::copy_n(w.best, L, y + (at + k) * L);
        if (index)
          std::copy_n(w.where, L, index + (at + k) * L);
      }
    }
}

template <typename T, int L>
void maxGradPlane(const Pool &p, const T *dy, const int32_t *index, T *dx) {
  std::fill_n(dx, p.inPlane * L, T(0));
  for (int64_t at = 0; at < p.outPlane; ++at)
    for (int l = 0; l < L; ++l)
      if (index[at * L + l] >= 0)
        dx[int64_t(index[at * L + l]) * L + l] += dy[at * L + l];
}

int64_t divisorOf(bool padded, const Pool::Taps &z, const Pool::Taps &y,
                  const Pool::Taps &x) {
  return padded ? z.padded * y.padded * x.padded
                : (z.last - z.first) * (y.last - y.first) * (x.last - x.first);
}

template <typename T, int L>
void avgPlane(const Pool &p, bool padded, const T *x, T *y) {
  forEachWindow(
      p, [&](int64_t at, const auto &tz, const auto &ty, const auto &tx) {
        T sum[L] = {};
        forEachTap(p, tz, ty, tx, [&](int64_t from) {
          for (int l = 0; l < L; ++l)
            sum[l] += x[from * L + l];
        });
        const int64_t count = divisorOf(padded, tz, ty, tx);
        for (int l = 0; l < L; ++l)
          y[at * L + l] = count ? sum[l] / T(count) : T(0);
      });
}

template <typename T, int L>
void avgGradPlane(const Pool &p, bool padded, const T *dy, T *dx) {
  std::fill_n(dx, p.inPlane * L, T(0));
  forEachWindow(
      p, [&](int64_t at, const auto &tz, const auto &ty, const auto &tx) {
        const int64_t count = divisorOf(padded, tz, ty, tx);
        T share[L];
        for (int l = 0; l < L; ++l)
          share[l] = count ? dy[at * L + l] / T(count) : T(0);
        forEachTap(p, tz, ty, tx, [&](int64_t to) {
          for (int l = 0; l < L; ++l)
            dx[to * L + l] += share[l];
        });
      });
}

/// Calls body.operator()<T, L>(pool, plane) over all planes.
template <typename Body> void overPlanes(const PipecPool &d, const Body &body) {
  const Pool p(d);
  pipec::cpu::parallelFor(p.planes, p.grain(), [&](int64_t plane) {
    if (d.dtype == PIPEC_F64)
      p.lanes == 1 ? body.template operator()<double, 1>(p, plane)
                   : body.template operator()<double, kBlock>(p, plane);
    else
      p.lanes == 1 ? body.template operator()<float, 1>(p, plane)
                   : body.template operator()<float, kBlock>(p, plane);
  });
}

/// Plane `i` of a buffer of planes with `plane` positions of L lanes.
template <typename T, int L, typename V>
auto *planeOf(V *buffer, int64_t i, int64_t plane) {
  using E = std::conditional_t<std::is_const_v<V>, const T, T>;
  return static_cast<E *>(buffer) + i * plane * L;
}

} // namespace

extern "C" void pipec_max_pool(const PipecPool *d, const void *x, void *y,
                               int32_t *index) {
  overPlanes(*d, [&]<typename T, int L>(const Pool &p, int64_t i) {
    maxPlane<T, L>(p, planeOf<T, L>(x, i, p.inPlane),
                   planeOf<T, L>(y, i, p.outPlane),
                   index ? index + i * p.outPlane * L : nullptr);
  });
}

extern "C" void pipec_max_pool_grad(const PipecPool *d, const void *dy,
                                    const int32_t *index, void *dx) {
  overPlanes(*d, [&]<typename T, int L>(const Pool &p, int64_t i) {
    maxGradPlane<T, L>(p, planeOf<T, L>(dy, i, p.outPlane),
                       index + i * p.outPlane * L,
                       planeOf<T, L>(dx, i, p.inPlane));
  });
}

extern "C" void pipec_avg_pool(const PipecPool *d, const void *x, void *y) {
  const bool padded = d->count_include_pad != 0;
  overPlanes(*d, [&]<typename T, int L>(const Pool &p, int64_t i) {
    avgPlane<T, L>(p, padded, planeOf<T, L>(x, i, p.inPlane),
                   planeOf<T, L>(y, i, p.outPlane));
  });
}

extern "C" void pipec_avg_pool_grad(const PipecPool *d, const void *dy,
                                    void *dx) {
  const bool padded = d->count_include_pad != 0;
  overPlanes(*d, [&]<typename T, int L>(const Pool &p, int64_t i) {
    avgGradPlane<T, L>(p, padded, planeOf<T, L>(dy, i, p.outPlane),
                       planeOf<T, L>(dx, i, p.inPlane));
  });
}
