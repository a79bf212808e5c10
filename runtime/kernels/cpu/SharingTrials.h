//===- SharingTrials.h - which loops threads share --------------*- C++ -*-===//
//
// What a shared loop costs beside its work depends on how far apart the
// threads' cores are: some 50 ns from core to core where they have a cache in
// common, 400 where they have not, and a virtual machine's host moves them from
// one to the other. A task of loops that one thread ends within microseconds is
// then two or three times as long in two threads as in one. So a task is tried
// with only its longer loops shared, and is run as it was fastest; now and then
// it is tried again:
//
//   calls   w w  1 1 1  8 8 8  64         8 8 8 8 ...  8 8 8  64  1 ...
//           warm |trials, the last one     as was       trials
//                |far slower: no more      fastest
//
// What a task computes does not depend on it (Parallel.h).
//
//===----------------------------------------------------------------------===//
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pipec::cpu {

/// Of one task of a stage program, on one thread.
class SharingTrials {
public:
  /// What loops have to be worth to be shared, in what is usual
  /// (pipec_share_from).
  static constexpr std::array<int64_t, 4> kTimes = {1, 8, 64, 512};

  /// For the next call.
  int64_t next() const { return kTimes[tried]; }

  /// Whether it is known, for now.
  bool isResting() const { return rest > 0; }

  /// That call took so long.
  void took(double seconds) {
    if (warm > 0)
      return void(--warm);
    if (rest > 0)
      return watch(seconds);
    least = runs == 0 ? seconds : std::min(least, seconds);
    if (++runs < kRuns && !isHopeless())
      return;
    runs = 0;
    judge();
  }

private:
  static constexpr int kWarm = 2, kRuns = 3, kRest = 64, kLongestRest = 2048;
  /// A gain below that may be chance.
  static constexpr double kGain = 0.97;
  /// So much slower once is no disturbance.
  static constexpr double kHopeless = 1.5;
  /// As often in a row slower than that than when it was tried, and the cores
  /// are others.
  static constexpr int kSlowRuns = 16;

  bool isHopeless() const {
    return tried != best && least > kHopeless * bestSeconds;
  }

  /// Between trials.
  void watch(double seconds) {
    slow = seconds > kHopeless * bestSeconds ? slow + 1 : 0;
    if (slow >= kSlowRuns)
      rest = 1, pause = kRest;
    if (--rest == 0)
      slow = 0;
  }

  void judge() {
    if (tried == best) { // how long it takes as things are
      bestSeconds = least;
      step = best + 1 < kTimes.size() ? 1 : -1;
    } else if (least < kGain * bestSeconds) {
      best = tried;
      bestSeconds = least;
      hasMoved = true;
    } else if (step > 0 && !hasMoved) { // the other way
      step = -1;
    } else {
      return end();
    }
    if (step < 0 ? best == 0 : best + 1 == kTimes.size())
      return end();
    tried = step < 0 ? best - 1 : best + 1;
  }

  void end() {
    pause = hasMoved ? kRest : std::min(2 * pause, kLongestRest);
    rest = pause;
    hasMoved = false;
    tried = best;
  }

  std::size_t best = 0, tried = 0; ///< of kTimes
  double bestSeconds = 0, least = 0;
  int warm = kWarm, runs = 0, rest = 0, pause = kRest / 2, slow = 0;
  int step = 1;
  bool hasMoved = false;
};

} // namespace pipec::cpu
