//===- Prediction.h - a plan's step as a timeline ---------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/Simulator.h"
#include "runtime/program/Plan.h"

#include <optional>
#include <vector>

namespace pipec::report {

/// The step that the plan's programs and costs describe: computation alone, as
/// soon as its inputs exist. Transfers and the update are in the plan's
/// predicted step time but not drawn. A stream program has no step; it is shown
/// from its start for as many microbatches as it takes to be steady.
struct Prediction {
  schedule::Schedule schedule;
  schedule::Timeline timeline;
};

/// Nothing when the costs are all zero (a plan written by hand).
std::optional<Prediction> predict(const plan::Plan &plan);

/// Bytes in use on a rank: everything that is allocated throughout plus the
/// stash slots that hold a microbatch.
struct MemoryPoint {
  double seconds = 0;
  int64_t bytes = 0;
};

/// A step function over the timeline, one point where it changes, starting at
/// 0 s. Its largest value is the rank's peak, unless the order never fills all
/// slots.
std::vector<MemoryPoint> memoryOverTime(const plan::Plan &plan, int rank,
                                        const Prediction &prediction);

/// Microbatches that the timeline of a stream program shows.
int64_t streamWindow(const plan::Plan &plan);

} // namespace pipec::report
