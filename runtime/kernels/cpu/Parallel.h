//===- Parallel.h - loops on the calling thread's team ----------*- C++ -*-===//
//
// The library's own loops go through pipec_parallel, so that the rule "cut by
// shape, never by thread" is visible at every call: a loop body may depend on
// its index only.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/Kernels.h"

#include <cstdint>

namespace pipec::cpu {

/// What pipec_share_from was told last on this thread.
int64_t leastShared();

/// Calls body(lo, hi) over disjoint ranges of [0, n) that start at multiples of
/// `grain`; body must give the same result however [0, n) is cut.
template <typename Body>
void parallelRanges(int64_t n, int64_t grain, const Body &body) {
  void *const args[] = {const_cast<void *>(static_cast<const void *>(&body))};
  pipec_parallel(
      [](int64_t lo, int64_t hi, void *const *args) {
        (*static_cast<const Body *>(args[0]))(lo, hi);
      },
      n, grain, args);
}

/// Calls body(i) for every i of [0, n).
template <typename Body>
void parallelFor(int64_t n, int64_t grain, const Body &body) {
  parallelRanges(n, grain, [&body](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i)
      body(i);
  });
}

/// Calls body() once on every thread of the calling thread's team.
void onEveryThread(void (*body)());

} // namespace pipec::cpu
