//===- MicroKernels.cpp - products and packing, for one processor level ---===//
#include "runtime/kernels/cpu/level/MicroKernels.h"
#include "runtime/kernels/cpu/level/Packing.h"

namespace pipec::cpu {
namespace {

void widen(float *dst, const uint16_t *src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = uint32_t{src[i]} << 16;
    __builtin_memcpy(dst + i, &bits, sizeof bits);
  }
}

template <typename T>
constexpr void (*kWiden)(T *, const uint16_t *, int64_t) = nullptr;
template <>
constexpr void (*kWiden<float>)(float *, const uint16_t *, int64_t) = widen;

template <typename T>
constexpr MicroKernels<T> kTable = {
    kRows,        kLanes<T>,   kVectors,    kVectors *kLanes<T>, anyTile<T>,
    packLines<T>, packRows<T>, packBand<T>, transpose<T>,        kWiden<T>};

} // namespace

extern const MicroKernels<float> PIPEC_TABLE(floatKernels);
extern const MicroKernels<double> PIPEC_TABLE(doubleKernels);
constexpr MicroKernels<float> PIPEC_TABLE(floatKernels) = kTable<float>;
constexpr MicroKernels<double> PIPEC_TABLE(doubleKernels) = kTable<double>;

} // namespace pipec::cpu
