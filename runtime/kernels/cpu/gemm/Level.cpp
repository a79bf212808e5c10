//===- Level.cpp - which copy of the micro kernels this processor runs ----===//

#include "runtime/kernels/cpu/gemm/MicroKernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace pipec::cpu {

#define PIPEC_DECLARE(level)                                                   \
  extern const MicroKernels<float> floatKernels_##level;                       \
  extern const MicroKernels<double> doubleKernels_##level;
PIPEC_DECLARE(baseline)
#ifdef __x86_64__
PIPEC_DECLARE(v3)
PIPEC_DECLARE(v4)
#endif
#undef PIPEC_DECLARE

namespace {

enum Level { Baseline, V3, V4 };

Level supported() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2"))
    return Baseline;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return V4;
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
    return supported();
  }();
  return chosen;
}

} // namespace

template <> const MicroKernels<float> &microKernels() {
#ifdef __x86_64__
  if (level() == V4)
    return floatKernels_v4;
  if (level() == V3)
    return floatKernels_v3;
#endif
  return floatKernels_baseline;
}

template <> const MicroKernels<double> &microKernels() {
#ifdef __x86_64__
  if (level() == V4)
    return doubleKernels_v4;
  if (level() == V3)
    return doubleKernels_v3;
#endif
  return doubleKernels_baseline;
}

} // namespace pipec::cpu
