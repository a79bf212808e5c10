//===- Recorded.h - a part of a step that repeats ---------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Gpu.h"

namespace pipec::cuda {

/// Ends the recording of a stream. Failure(Unavailable).
inline GraphExec endCapture(const Driver &cuda, Stream stream) {
  Graph graph = nullptr;
  cuda.check(cuda.endCapture(stream, &graph), "cuStreamEndCapture");
  GraphExec exec = nullptr;
  cuda.check(cuda.instantiate(&exec, graph, kNodePriorities),
             "cuGraphInstantiate");
  cuda.destroyGraph(graph);
  return exec;
}

/// Events are made in the first repetition, and are the same in all of them.
struct Gpu::Recorded {
  int repetitions = 0;
  GraphExec graph = nullptr;    ///< of a rank without links
  double start = 0;             ///< on the clock, when it was queued
  size_t events = 0, marks = 0; ///< used in this repetition
  std::vector<Event> allEvents, markEvents;

  ~Recorded() {
    const Driver &cuda = Driver::get();
    for (auto *list : {&allEvents, &markEvents})
      for (Event event : *list)
        cuda.destroyEvent(event);
    if (graph)
      cuda.destroyGraphExec(graph);
  }
  void rewind() { events = marks = 0; }
  Event nextEvent() { return next(allEvents, events, kNoTiming); }
  Event nextMark() { return next(markEvents, marks, 0); }

private:
  static Event next(std::vector<Event> &list, size_t &used, unsigned flags) {
    if (used == list.size()) {
      const Driver &cuda = Driver::get();
      cuda.check(cuda.createEvent(&list.emplace_back(), flags),
                 "cuEventCreate");
    }
    return list[used++];
  }
};

} // namespace pipec::cuda
