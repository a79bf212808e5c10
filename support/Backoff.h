//===- Backoff.h - how a rank waits -----------------------------*- C++ -*-===//
#pragma once

#include "support/Clock.h"
#include "support/Doorbell.h"

#include <algorithm>
#include <sched.h>
#include <time.h>

namespace pipec {

/// Sleeps for about so long.
inline void nap(long nanoseconds) {
  wakeOnTime();
  const timespec time{0, nanoseconds};
  nanosleep(&time, nullptr);
}

/// Between two looks of a rank for a message.
inline constexpr long kLookNanoseconds = 20000;

/// How long a rank looks without a sleep: to be woken behind that, some 20 us,
/// is 2 % of the wait.
inline constexpr double kEagerSeconds = 1e-3;

/// Between two looks. A rank looks again at once, since who sleeps takes some
/// 20 us to be awake, and first lets others have its core, whose tasks are soon
/// done where they are ranks of the same job; who waits longer sleeps.
class Backoff {
public:
  /// `heard`: the bell's rings before the last look.
  void pause(const Doorbell *bell, uint32_t heard) {
    const long look =
        ++looks < 20000 ? kLookNanoseconds : 10 * kLookNanoseconds;
    if (eager) {
      sched_yield();
      eager = now() - start < kEagerSeconds;
    } else if (!bell) {
      nap(look);
    } else {
      bell->rest(heard, bell->isComplete() ? length : look);
      length = std::min(2 * length, kLongest);
    }
  }

private:
  /// Some messages take steps of both sides of which nobody tells.
  static constexpr long kLongest = 500'000;
  const double start = now();
  bool eager = true;
  int looks = 0;
  long length = 2 * kLookNanoseconds;
};

} // namespace pipec
