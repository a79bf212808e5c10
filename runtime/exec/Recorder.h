//===- Recorder.h - how a rank spent its time -------------------*- C++ -*-===//
#pragma once

#include "runtime/exec/StepTotals.h"
#include "support/Clock.h"

#include <cstdint>
#include <vector>

namespace pipec {

/// Something a rank did. `kind`: F B I W, U (update), R (sums over replicas and
/// uses), T (running statistics), Z (gradients cleared; in totals alone).
struct Event {
  char kind;
  int stage;                ///< -1: of all stages
  int64_t step, microbatch; ///< microbatch -1: none
  double start, end;
};

class Recorder {
public:
  /// Leaves steps before `step`, which warm caches up, out of the totals.
  void countFrom(int64_t step) { totals = StepTotals(step); }

  /// Keeps the events of steps [first, last), at most `capacity`.
  void keep(int64_t first, int64_t last, size_t capacity) {
    firstStep = first, lastStep = last, limit = capacity;
    events.reserve(capacity);
  }

  void add(const Event &event, double coreSeconds = 0) {
    const double seconds = event.end - event.start;
    totals.add(event.kind, event.stage, event.step, seconds, coreSeconds);
    if (event.kind != 'R')
      busy += seconds;
    if (event.kind == 'Z') // too short to be seen
      return;
    if (event.step < firstStep || event.step >= lastStep)
      return;
    if (events.size() < limit)
      events.push_back(event);
    else
      ++dropped;
  }

  double busy = 0; ///< seconds in stage programs, and clearing gradients
  int64_t dropped = 0;
  std::vector<Event> events;
  StepTotals totals;

private:
  int64_t firstStep = 0, lastStep = 0;
  size_t limit = 0;
};

} // namespace pipec
