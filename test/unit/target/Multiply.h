//===- Multiply.h - a product by the CPU's kernels --------------*- C++ -*-===//
//
// For tests in which a processor does the work of a device, which multiplies
// bf16 as well: added in f32, rounded once.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/Kernels.h"
#include "support/NarrowFloat.h"

#include <cstdlib>
#include <vector>

namespace pipec {

/// As pipec_matmul.
inline void multiply(PipecMatmul d, const void *a, const void *b, void *c) {
  if (d.dtype != PIPEC_BF16 || d.wide)
    return pipec_matmul(&d, a, b, c);
  if (d.accumulate)
    std::abort(); // would round twice
  int64_t size = d.m > 0 && d.n > 0 ? (d.m - 1) * d.ldc + d.n : 0;
  for (int i = 0; i < d.batch_rank; ++i)
    size += (d.batch[i] - 1) * d.stride_c[i];
  std::vector<float> sums(static_cast<size_t>(size));
  d.wide = 1;
  pipec_matmul(&d, a, b, sums.data());
  // Between the rows is what the product leaves alone.
  int64_t matrices = 1;
  for (int i = 0; i < d.batch_rank; ++i)
    matrices *= d.batch[i];
  for (int64_t number = 0; number < matrices; ++number) {
    int64_t at = 0, rest = number;
    for (int i = d.batch_rank; i-- > 0; rest /= d.batch[i])
      at += rest % d.batch[i] * d.stride_c[i];
    for (int64_t row = 0; row < d.m; ++row)
      for (int64_t column = 0; column < d.n; ++column) {
        const int64_t place = at + row * d.ldc + column;
        static_cast<uint16_t *>(c)[place] =
            toBfloat(sums[static_cast<size_t>(place)]);
      }
  }
}

/// c = a b + bias, a number for each column, rounded once. Not with a
/// stride of 0 between results.
inline void multiplyBiased(PipecMatmul d, const void *a, const void *b,
                           const void *bias, void *c) {
  const bool isNarrow = d.dtype == PIPEC_BF16 && !d.wide;
  auto at = [](const void *from, int64_t index, bool narrow) {
    return narrow ? fromBfloat(static_cast<const uint16_t *>(from)[index])
                  : static_cast<const float *>(from)[index];
  };
  int64_t size = 0, matrices = 1;
  for (int i = 0; i < d.batch_rank; ++i) {
    size += (d.batch[i] - 1) * d.stride_c[i];
    matrices *= d.batch[i];
  }
  size += d.m > 0 && d.n > 0 ? (d.m - 1) * d.ldc + d.n : 0;
  std::vector<float> sums(static_cast<size_t>(size));
  if (d.dtype == PIPEC_F64)
    std::abort();
  d.wide = isNarrow;
  pipec_matmul(&d, a, b, sums.data());
  for (int64_t number = 0; number < matrices; ++number) {
    int64_t start = 0, rest = number;
    for (int i = d.batch_rank; i-- > 0; rest /= d.batch[i])
      start += rest % d.batch[i] * d.stride_c[i];
    for (int64_t row = 0; row < d.m; ++row)
      for (int64_t column = 0; column < d.n; ++column) {
        const int64_t place = start + row * d.ldc + column;
        const float sum =
            sums[static_cast<size_t>(place)] + at(bias, column, isNarrow);
        if (isNarrow)
          static_cast<uint16_t *>(c)[place] = toBfloat(sum);
        else
          static_cast<float *>(c)[place] = sum;
      }
  }
}

} // namespace pipec
