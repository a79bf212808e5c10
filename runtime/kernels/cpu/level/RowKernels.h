//===- RowKernels.h - what a processor level gives image rows ---*- C++ -*-===//
//
// Loops over neighbouring positions of images: packing them for products,
// filtering them directly, and taking maxima. Compiled once per processor level
// like MicroKernels.cpp.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>

namespace pipec::cpu {

/// Elements past the end of a row that `filter` may read.
constexpr int64_t kRowSlack = 16;

/// Lanes of a sum of `dots`, on every level: part of the result's definition.
constexpr int64_t kDotLanes = 16;

template <typename T> struct RowKernels {
  /// A run of positions that a row of an image supplies to a panel: lanes
  /// [first, last) of vector `vector` (MicroKernels::lanes wide) come from
  /// base[lane * step].
  struct Run {
    int64_t base; ///< offset of lane 0 in the channel plane, maybe outside it
    int32_t vector, first, last;
  };
  /// For channel c < channels: zeroes dst[c * ld + 0 .. vectors*lanes) and then
  /// fills the runs from src + c * plane. Runs are ordered by vector.
  void (*packRuns)(T *dst, int64_t ld, int64_t vectors, const T *src,
                   int64_t plane, int64_t channels, const Run *runs,
                   int64_t runCount, int64_t step);

  /// to[i * stride] = or += from[i] for i < n.
  void (*putRun)(T *to, int64_t stride, const T *from, int64_t n, bool add);

  /// out[i] = sum of weights[t] * rows[t][i] over t < terms, in that order, for
  /// i < n. Rows are read up to n + kRowSlack.
  void (*filter)(T *out, int64_t n, const T *const *rows, const T *weights,
                 int64_t terms);

  /// sums[t * kDotLanes + l] += dy[i] * rows[t][i] over i = l modulo kDotLanes,
  /// ascending, for i < n. Rows are read up to the next multiple of kDotLanes.
  void (*dots)(T *sums, const T *dy, int64_t n, const T *const *rows,
               int64_t terms);

  /// best[i], where[i] = the maximum of rows[t][i * step] over t < terms, and
  /// at[t] + i * step of it, as pipec_max_pool wants them, for i < n. Reads no
  /// element but those. terms >= 1.
  void (*maximum)(T *best, int32_t *where, int64_t n, const T *const *rows,
                  const int32_t *at, int64_t terms, int64_t step);
};

/// The kernels for this processor (see microKernels).
template <typename T> const RowKernels<T> &rowKernels();

} // namespace pipec::cpu
