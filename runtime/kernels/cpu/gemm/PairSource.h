//===- PairSource.h - a bf16 matrix as an operand ---------------*- C++ -*-===//
#pragma once

#include "runtime/kernels/cpu/gemm/Gemm.h"

#include <algorithm>

namespace pipec::cpu {

/// As MatrixSource, of `k` steps that are taken two at a time; an odd last one
/// is paired with zeros.
class PairSource final : public PanelSource<Pair> {
public:
  PairSource(const uint16_t *data, int64_t ld, bool contiguousK, int64_t k)
      : data(data), ld(ld), k(k), contiguousK(contiguousK) {}

  void pack(Pair *dst, int64_t width, int64_t first, int64_t count, int64_t k0,
            int64_t kc) const override {
    const int64_t whole = std::min(kc, k / 2 - k0);
    const MicroKernels<Pair> &u = microKernels<Pair>();
    (contiguousK ? u.packLines : u.packRows)(dst, width, at(first, k0), ld,
                                             count, whole);
    if (whole < kc)
      packLast(dst + whole * width, width, first, count);
  }

  void packBand(Pair *dst, int64_t first, int64_t last, int64_t k0,
                int64_t kc) const override {
    const MicroKernels<Pair> &u = microKernels<Pair>();
    const int64_t panels = (last - first) / u.rows, even = panels * u.rows;
    if (contiguousK || k0 + kc > k / 2)
      return PanelSource<Pair>::packBand(dst, first, last, k0, kc);
    u.packBand(dst, panels, at(first, k0), ld, kc);
    if (first + even < last)
      pack(dst + even * kc, u.rows, first + even, last - first - even, k0, kc);
  }

  /// Pairs may begin anywhere, but not end behind the matrix.
  const uint16_t *inPlace(int64_t first, int64_t k0,
                          int64_t &stride) const override {
    stride = ld;
    return contiguousK && ld && k % 2 == 0 ? at(first, k0) : nullptr;
  }

  void prefetch(int64_t first, int64_t count, int64_t k0, int64_t kc,
                int64_t part, int64_t parts) const override {
    prefetchLines(at(first, k0), ld, contiguousK ? count : 2 * kc,
                  contiguousK ? 2 * kc : count, part, parts);
  }

private:
  const uint16_t *at(int64_t line, int64_t pair) const {
    return data + (contiguousK ? line * ld + 2 * pair : 2 * pair * ld + line);
  }

  void packLast(Pair *dst, int64_t width, int64_t first, int64_t count) const {
    const uint16_t *from = at(first, k / 2);
    for (int64_t i = 0; i < width; ++i)
      dst[i] = i < count ? from[contiguousK ? i * ld : i] : 0;
  }

  const uint16_t *data;
  int64_t ld, k;
  bool contiguousK;
};

} // namespace pipec::cpu
