//===- Level.cpp - which copy of the micro kernels this processor runs ----===//

#include "runtime/kernels/cpu/level/MicroKernels.h"
#include "runtime/kernels/cpu/level/RowKernels.h"
#include "runtime/kernels/cpu/level/WinogradTiles.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace pipec::cpu {

#define PIPEC_DECLARE(level)                                                   \
  extern const MicroKernels<float> floatKernels_##level;                       \
  extern const MicroKernels<double> doubleKernels_##level;                     \
  extern const RowKernels<float> floatRows_##level;                            \
  extern const RowKernels<double> doubleRows_##level;                          \
  extern const WinogradTiles winogradTiles_##level;
PIPEC_DECLARE(baseline)
#ifdef __x86_64__
PIPEC_DECLARE(v3)
PIPEC_DECLARE(v4)
extern const MicroKernels<Pair> pairKernels_v4bf16;
#endif
#undef PIPEC_DECLARE

namespace {

enum Level { Baseline, V3, V4, V4Bf16 };

Level supported() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2"))
    return Baseline;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return __builtin_cpu_supports("avx512bf16") ? V4Bf16 : V4;
  return V3;
#else
  return Baseline;
#endif
}

Level level() {
  static const Level chosen = [] {
    const char *wanted = std::getenv("PIPEC_KERNELS");
    if (wanted && !std::strcmp(wanted, "baseline"))
      return Baseline;
    if (wanted && !std::strcmp(wanted, "v3"))
      return std::min(V3, supported());
    if (wanted && !std::strcmp(wanted, "v4"))
      return std::min(V4, supported());
    return supported();
  }();
  return chosen;
}

} // namespace

#ifdef __x86_64__
#define PIPEC_CHOOSE(name)                                                     \
  (level() >= V4 ? name##_v4 : level() == V3 ? name##_v3 : name##_baseline)
#else
#define PIPEC_CHOOSE(name) name##_baseline
#endif

template <> const MicroKernels<float> &microKernels() {
  return PIPEC_CHOOSE(floatKernels);
}
template <> const MicroKernels<double> &microKernels() {
  return PIPEC_CHOOSE(doubleKernels);
}
#ifdef __x86_64__
bool multipliesPairs() { return level() == V4Bf16; }
template <> const MicroKernels<Pair> &microKernels() {
  return pairKernels_v4bf16;
}
#else
bool multipliesPairs() { return false; }
template <> const MicroKernels<Pair> &microKernels() { std::abort(); }
#endif
template <> const RowKernels<float> &rowKernels() {
  return PIPEC_CHOOSE(floatRows);
}
template <> const RowKernels<double> &rowKernels() {
  return PIPEC_CHOOSE(doubleRows);
}
const WinogradTiles &winogradTiles() { return PIPEC_CHOOSE(winogradTiles); }

} // namespace pipec::cpu
