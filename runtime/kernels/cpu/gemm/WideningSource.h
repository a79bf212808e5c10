//===- WideningSource.h - a bf16 matrix as an operand of f32 ----*- C++ -*-===//
#pragma once

#include "runtime/kernels/cpu/gemm/Gemm.h"

#include <algorithm>

namespace pipec::cpu {

/// As MatrixSource, widened while it is packed: for processors that do not
/// multiply bf16.
class WideningSource final : public PanelSource<float> {
public:
  WideningSource(const uint16_t *data, int64_t ld, bool contiguousK)
      : data(data), ld(ld), contiguousK(contiguousK) {}

  void pack(float *dst, int64_t width, int64_t first, int64_t count, int64_t k0,
            int64_t kc) const override {
    static_assert(64 * kDepth * sizeof(float) <=
                      kScratchElements * sizeof(double),
                  "more than a tile's columns");
    widened(first, count, k0, kc).pack(dst, width, 0, count, 0, kc);
  }

  /// As many lines at a time as there is scratch for.
  void packBand(float *dst, int64_t first, int64_t last, int64_t k0,
                int64_t kc) const override {
    constexpr int64_t lines = kScratchElements / kDepth / 8 * 8;
    static_assert(lines >= 8, "whole tiles' rows, of any level");
    for (int64_t i = first; i < last; i += lines) {
      const int64_t count = std::min(lines, last - i);
      widened(i, count, k0, kc)
          .packBand(dst + (i - first) * kc, 0, count, 0, kc);
    }
  }

  void prefetch(int64_t first, int64_t count, int64_t k0, int64_t kc,
                int64_t part, int64_t parts) const override {
    prefetchLines(at(first, k0), ld, contiguousK ? count : kc,
                  contiguousK ? kc : count, part, parts);
  }

private:
  const uint16_t *at(int64_t line, int64_t k) const {
    return data + (contiguousK ? line * ld + k : k * ld + line);
  }

  /// A part of the matrix in the thread's scratch.
  MatrixSource<float> widened(int64_t first, int64_t count, int64_t k0,
                              int64_t kc) const {
    float *scratch = threadScratch<float>();
    const int64_t rows = contiguousK ? count : kc;
    const int64_t length = contiguousK ? kc : count;
    for (int64_t i = 0; i < rows; ++i)
      microKernels<float>().widen(scratch + i * length, at(first, k0) + i * ld,
                                  length);
    return {scratch, length, contiguousK};
  }

  const uint16_t *data;
  int64_t ld;
  bool contiguousK;
};

} // namespace pipec::cpu
