//===- RowBand.h - padded bands of image rows -------------------*- C++ -*-===//
#pragma once

#include "runtime/kernels/cpu/conv/ConvShape.h"
#include "runtime/kernels/cpu/level/RowKernels.h"

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
    for (int64_t r = 0; r < count; ++r, ++y, to += row())
      if (!data || y < 0 || y >= height)
        std::fill_n(to, row(), T(0));
      else
        for (int64_t p = 0; p < parts; ++p)
          fillPart(to + p * part(), data + y * width, width, start + p);
  }

private:
  template <typename T>
  void fillPart(T *to, const T *from, int64_t width, int64_t base) const {
    const int64_t length = part(), room = width - base;
    const int64_t first =
        std::min(length, base < 0 ? (-base - 1) / parts + 1 : int64_t(0));
    const int64_t last = std::clamp<int64_t>(
        room > 0 ? (room - 1) / parts + 1 : 0, first, length);
    std::fill(to, to + first, T(0));
    rowKernels<T>().takeRun(to + first, from + base + first * parts, parts,
                            last - first);
    std::fill(to + last, to + length, T(0));
  }
};

} // namespace pipec::cpu
