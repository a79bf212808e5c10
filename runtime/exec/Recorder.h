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
  int stage;
  int64_t step, microbatch; ///< microbatch -1: none
  double start, end;
};

class Recorder {
public:
  /// Keeps at most `capacity` events, for a trace; 0 keeps none.
  explicit Recorder(size_t capacity) : capacity(capacity) {
    events.reserve(capacity);
  }

  void add(const Event &event) {
    if (event.kind != 'R')
      busy += event.end - event.start;
    if (events.size() < capacity)
      events.push_back(event);
    else
      ++dropped;
  }

  double busy = 0; ///< seconds in stage programs
  int64_t dropped = 0;
  std::vector<Event> events;

private:
  size_t capacity;
};

} // namespace pipec
