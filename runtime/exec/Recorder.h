//===- Recorder.h - how a rank spent its time -------------------*- C++ -*-===//
#pragma once

#include "support/Clock.h"

#include <cstdint>
#include <vector>

namespace pipec {

/// Something a rank did. `kind`: F B I W, U (update), R (sums over replicas and
/// uses), T (running statistics).
struct Event {
  char kind;
  int stage;                ///< -1: of all stages
  int64_t step, microbatch; ///< microbatch -1: none
  double start, end;
};

/// All that a rank did of one kind for a stage, without the steps that warm
/// caches up.
struct TaskTotal {
  char kind;
  int stage;
  int64_t calls;
  double seconds;     ///< on the clock
  double coreSeconds; ///< while its thread had a core
};

class Recorder {
public:
  /// Leaves steps before `step` out of the totals.
  void countFrom(int64_t step) { firstCounted = step; }

  /// Keeps the events of steps [first, last), at most `capacity`.
  void keep(int64_t first, int64_t last, size_t capacity) {
    firstStep = first, lastStep = last, limit = capacity;
    events.reserve(capacity);
  }

  void add(const Event &event, double coreSeconds = 0) {
    if (event.kind != 'R')
      busy += event.end - event.start;
    if (event.step >= firstCounted)
      count(event, coreSeconds);
    if (event.step < firstStep || event.step >= lastStep)
      return;
    if (events.size() < limit)
      events.push_back(event);
    else
      ++dropped;
  }

  double busy = 0; ///< seconds in stage programs
  int64_t dropped = 0;
  std::vector<Event> events;
  std::vector<TaskTotal> totals;

private:
  void count(const Event &event, double coreSeconds) {
    for (TaskTotal &total : totals)
      if (total.kind == event.kind && total.stage == event.stage) {
        ++total.calls;
        total.seconds += event.end - event.start;
        total.coreSeconds += coreSeconds;
        return;
      }
    totals.push_back(
        {event.kind, event.stage, 1, event.end - event.start, coreSeconds});
  }

  int64_t firstCounted = 0;
  int64_t firstStep = 0, lastStep = 0;
  size_t limit = 0;
};

} // namespace pipec
