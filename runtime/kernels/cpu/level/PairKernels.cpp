//===- PairKernels.cpp - products of bf16 by their own instruction --------===//
#include "runtime/kernels/cpu/level/MicroKernels.h"
#include "runtime/kernels/cpu/level/Packing.h"

namespace pipec::cpu {
namespace {

/// `Lanes` elements of two rows, as pairs.
template <int Lanes>
void zip(Pair *dst, const uint16_t *low, const uint16_t *high) {
  typedef uint16_t Halves __attribute__((vector_size(2 * Lanes), aligned(2)));
  typedef uint32_t Pairs __attribute__((vector_size(4 * Lanes), aligned(4)));
  const Halves l = *reinterpret_cast<const Halves *>(low),
               h = *reinterpret_cast<const Halves *>(high);
  *reinterpret_cast<Pairs *>(dst) = __builtin_convertvector(l, Pairs) |
                                    __builtin_convertvector(h, Pairs) << 16;
}

/// As packRows, of two rows of the matrix a step.
void packPairRows(Pair *dst, int64_t width, const uint16_t *src, int64_t ld,
                  int64_t count, int64_t kc) {
  constexpr int lanes = kLanes<Pair>;
  const int64_t whole = count / lanes * lanes;
  for (int64_t k = 0; k < kc; ++k, dst += width, src += 2 * ld) {
    int64_t i = 0;
    for (; i < whole; i += lanes) {
      __builtin_prefetch(src + kAhead * ld + i);
      __builtin_prefetch(src + (kAhead + 1) * ld + i);
      zip<lanes>(dst + i, src + i, src + ld + i);
    }
    for (; i < count; ++i)
      dst[i] = src[i] | Pair(src[ld + i]) << 16;
    for (; i < width; ++i)
      dst[i] = 0;
  }
}

/// As packBand, of two rows of the matrix a step.
void packPairBand(Pair *dst, int64_t panels, const uint16_t *src, int64_t ld,
                  int64_t kc) {
  constexpr int64_t group = 4;
  for (int64_t first = 0; first < panels; first += group) {
    const int64_t last = first + group < panels ? first + group : panels;
    const uint16_t *from = src;
    for (int64_t k = 0; k < kc; ++k, from += 2 * ld) {
      __builtin_prefetch(from + kAhead * ld + first * kRows);
      __builtin_prefetch(from + (kAhead + 1) * ld + first * kRows);
      for (int64_t p = first; p < last; ++p)
        zip<kRows>(dst + (p * kc + k) * kRows, from + p * kRows,
                   from + ld + p * kRows);
    }
  }
}

} // namespace

extern const MicroKernels<Pair> PIPEC_TABLE(pairKernels);
constexpr MicroKernels<Pair> PIPEC_TABLE(pairKernels) = {
    kRows,         kLanes<Pair>,    kVectors,     kVectors *kLanes<Pair>,
    anyTile<Pair>, packLines<Pair>, packPairRows, packPairBand,
    nullptr,       nullptr};

} // namespace pipec::cpu
