//===- Recorder.h - how a rank spent its time -------------------*- C++ -*-===//
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace pipec {

/// Seconds of a clock that all ranks of a machine share.
inline double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Something a rank did. `kind`: F B I W, U (update), R (sums over replicas and
/// uses), T (running statistics).
struct Event {
  char kind;
  int stage;                ///< -1: of all stages
  int64_t step, microbatch; ///< microbatch -1: none
  double start, end;
};

class Recorder {
public:
  /// Keeps the events of steps [first, last), at most `capacity`.
  void keep(int64_t first, int64_t last, size_t capacity) {
    firstStep = first, lastStep = last, limit = capacity;
    events.reserve(capacity);
  }

  void add(const Event &event) {
    if (event.kind != 'R')
      busy += event.end - event.start;
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

private:
  int64_t firstStep = 0, lastStep = 0;
  size_t limit = 0;
};

} // namespace pipec
