//===- Clock.h - how long things take ---------------------------*- C++ -*-===//
#pragma once

#include <chrono>
#include <ctime>

namespace pipec {

/// Seconds of a clock that all processes of a machine share and nobody sets.
inline double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Seconds the calling thread has had a core.
inline double coreSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
}

} // namespace pipec
