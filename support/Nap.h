//===- Nap.h - the shortest sleep of a thread that waits --------*- C++ -*-===//
#pragma once

#include <sys/prctl.h>
#include <time.h>

namespace pipec {

/// Sleeps for about so long. The kernel may put a wake-up off by a thread's
/// timer slack, 50 us unless it is told otherwise: more than most naps ask for.
inline void nap(long nanoseconds) {
  static thread_local const int told = ::prctl(PR_SET_TIMERSLACK, 1000);
  (void)told;
  const timespec time{0, nanoseconds};
  nanosleep(&time, nullptr);
}

/// Between two looks of a rank for a message.
inline constexpr long kLookNanoseconds = 20000;

} // namespace pipec
