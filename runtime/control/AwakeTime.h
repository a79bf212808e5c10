//===- AwakeTime.h - time that somebody was there to wait -------*- C++ -*-===//
#pragma once

#include "support/Clock.h"

#include <algorithm>

namespace pipec {

/// The clock of who waits for others. A machine that was suspended, or a
/// process that was stopped, has heard nothing because it did not listen: of
/// the time between two looks at the clock only so much counts.
class AwakeTime {
public:
  /// `timeout`: what is waited for at most, in all.
  explicit AwakeTime(double timeout)
      : most(std::clamp(timeout / 8, 0.1, 1.0)), last(now()) {}

  /// Seconds since the beginning.
  double look() {
    const double time = now();
    passed += std::min(time - last, most);
    last = time;
    return passed;
  }
  /// The same, at the last look.
  double seconds() const { return passed; }

private:
  double most, last, passed = 0;
};

} // namespace pipec
