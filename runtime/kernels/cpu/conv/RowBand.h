//===- RowBand.h - padded bands of image rows -------------------*- C++ -*-===//
#pragma once

#include "runtime/kernels/cpu/conv/ConvShape.h"
#include "runtime/kernels/cpu/level/MicroKernels.h"
#include "runtime/kernels/cpu/level/RowKernels.h"

#include <algorithm>

namespace pipec::cpu {

/// Copies of some rows of some planes with zeros where the image has none, so
/// that filters need not look at borders. Rows are split by remainder: element
/// i of part p of a row is column start + i * parts + p.
struct RowBand {
  int64_t planes, rows, parts, columns; ///< columns of each part

  int64_t part() const { return roundUp(columns + kRowSlack, kRowSlack); }
  int64_t row() const { return parts * part(); }
  int64_t plane() const { return rows * row(); }
  int64_t elements() const { return planes * plane(); }

  /// Fills rows [0, count) of one plane from row y of an image of height x
  /// width at `data` (null: zeros).
  template <typename T>
  void fill(T *to, const T *data, int64_t height, int64_t width, int64_t y,
            int64_t start, int64_t count) const {
    const int64_t above = data ? std::clamp<int64_t>(-y, 0, count) : count;
    const int64_t below =
        data ? std::clamp<int64_t>(height - y, above, count) : count;
    std::fill_n(to, above * row(), T(0));
    for (int64_t p = 0; p < parts && above < below; ++p)
      fillPart(to + above * row() + p * part(), data + (y + above) * width,
               width, start + p, below - above);
    std::fill_n(to + below * row(), (count - below) * row(), T(0));
  }

private:
  /// A part of `count` neighbouring rows, whole vectors at a time: what is read
  /// right after it was written in pieces would be waited for.
  template <typename T>
  void fillPart(T *to, const T *from, int64_t width, int64_t base,
                int64_t count) const {
    constexpr int64_t kMostRuns = 32;
    const int64_t lanes = microKernels<T>().lanes;
    const int64_t first = base < 0 ? (-base - 1) / parts + 1 : 0;
    const int64_t last = width > base ? (width - base - 1) / parts + 1 : 0;
    for (int64_t at = 0; at < part(); at += kMostRuns * lanes) {
      typename RowKernels<T>::Run runs[kMostRuns];
      const int64_t vectors = std::min(kMostRuns, (part() - at) / lanes);
      int64_t taken = 0;
      for (int64_t v = 0, i = at; v < vectors; ++v, i += lanes) {
        const int64_t low = std::clamp<int64_t>(first - i, 0, lanes);
        const int64_t high = std::clamp<int64_t>(last - i, 0, lanes);
        if (low < high)
          runs[taken++] = {base + i * parts, int32_t(v), int32_t(low),
                           int32_t(high)};
      }
      rowKernels<T>().packRuns(to + at, row(), vectors, from, width, count,
                               runs, taken, parts);
    }
  }
};

} // namespace pipec::cpu
