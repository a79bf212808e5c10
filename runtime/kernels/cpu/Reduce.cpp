//===- Reduce.cpp - helpers of the optimizer and of collectives -----------===//

#include "runtime/kernels/cpu/Parallel.h"

#include <algorithm>

namespace {

/// Elements per partial sum, and partial sums per pass: both part of the
/// result's definition.
constexpr int64_t kBlock = 16384, kBlocks = 512;

double blockSumSquares(const float *x, int64_t n) {
  constexpr int kLanes = 32;
  double sum[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l)
      sum[l] += double(x[i + l]) * double(x[i + l]);
  for (int l = 0; i < n; ++i, ++l)
    sum[l] += double(x[i]) * double(x[i]);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l)
      sum[l] += sum[l + width];
  return sum[0];
}

} // namespace

extern "C" double pipec_sum_squares(const float *x, int64_t n) {
  double total = 0;
  double partial[kBlocks];
  for (int64_t base = 0; base < n; base += kBlock * kBlocks) {
    const int64_t left = std::min(n - base, kBlock * kBlocks);
    const int64_t blocks = (left - 1) / kBlock + 1;
    pipec::cpu::parallelFor(blocks, 1, [&](int64_t b) {
      partial[b] = blockSumSquares(x + base + b * kBlock,
                                   std::min(kBlock, left - b * kBlock));
    });
    for (int64_t b = 0; b < blocks; ++b)
      total += partial[b];
  }
  return total;
}

extern "C" void pipec_add(float *dst, const float *src, int64_t n) {
  pipec::cpu::parallelRanges(n, 8192, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i)
      dst[i] += src[i];
  });
}
