//===- Multiply.h - a product by the CPU's kernels --------------*- C++ -*-===//
//
// For tests in which a processor does the work of a device, which multiplies
// bf16 as well: added in f32, rounded once.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/Kernels.h"

#include <cstdlib>
#include <cstring>
#include <vector>

namespace pipec {

/// The nearest bf16, of two the even one, as its bits.
inline uint16_t rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// The numbers of an operand: of `rows` rows with row stride `ld` a matrix.
inline std::vector<float> widened(const PipecMatmul &d, const void *data,
                                  int64_t rows, int64_t columns, int64_t ld,
                                  const int64_t *strides) {
  int64_t count = rows > 0 && columns > 0 ? (rows - 1) * ld + columns : 0;
  for (int i = 0; i < d.batch_rank; ++i)
    count += (d.batch[i] - 1) * strides[i];
  std::vector<float> wide(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = uint32_t{static_cast<const uint16_t *>(data)[i]}
                          << 16;
    std::memcpy(&wide[static_cast<size_t>(i)], &bits, sizeof bits);
  }
  return wide;
}

/// As pipec_matmul.
inline void multiply(PipecMatmul d, const void *a, const void *b, void *c) {
  if (d.dtype != PIPEC_BF16)
    return pipec_matmul(&d, a, b, c);
  d.dtype = PIPEC_F32;
  const std::vector<float> wideA =
      widened(d, a, d.transpose_a ? d.k : d.m, d.transpose_a ? d.m : d.k, d.lda,
              d.stride_a);
  const std::vector<float> wideB =
      widened(d, b, d.transpose_b ? d.n : d.k, d.transpose_b ? d.k : d.n, d.ldb,
              d.stride_b);
  if (d.wide)
    return pipec_matmul(&d, wideA.data(), wideB.data(), c);
  if (d.accumulate)
    std::abort(); // would round twice
  std::vector<float> sums = widened(d, c, d.m, d.n, d.ldc, d.stride_c);
  pipec_matmul(&d, wideA.data(), wideB.data(), sums.data());
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
            rounded(sums[static_cast<size_t>(place)]);
      }
  }
}

} // namespace pipec
