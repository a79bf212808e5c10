//===- TinyNumbers.h - numbers below 1e-38 ----------------------*- C++ -*-===//
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pipec {

/// From now on this thread, and those that it starts, take numbers below 1e-38
/// for 0. Some processors compute with them a hundred times slower, and what
/// saturates is full of them: gradients of masked scores and of a loss that
/// has been learnt.
inline void flushTinyNumbers() {
#if defined(__x86_64__)
  constexpr unsigned kResults = 0x8000, kOperands = 0x0040;
  _mm_setcsr(_mm_getcsr() | kResults | kOperands);
#elif defined(__aarch64__)
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | uint64_t(1) << 24));
#endif
}

} // namespace pipec
