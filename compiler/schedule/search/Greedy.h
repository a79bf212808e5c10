//===- Greedy.h - list scheduling under memory limits -----------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

#include <span>

namespace pipec::schedule::search {

/// How a device chooses among the tasks that are ready.
struct Policy {
  enum class Between { BackwardFirst, ForwardFirst, Oldest, Alternate };
  enum class Pick { Oldest, Deepest, Shallowest };
  Between between = Between::BackwardFirst;
  Pick forward = Pick::Deepest;
  Pick backward = Pick::Oldest;
  /// A weight gradient goes into an idle gap of at least this part of its time.
  double fill = 1;
  /// How much of the memory is kept for deeper stages of a device: 0, room for
  /// one microbatch each; 1, in proportion to how long they hold activations.
  double reserve = 0;
  /// Wait for an input gradient that arrives within this part of a forward.
  double patience = 0;
  /// Least time between two microbatches entering, as part of a device's work
  /// for a microbatch.
  double pace = 0;
};

/// Event-driven: in order of time each free device takes a ready task, or a
/// weight gradient to fill a gap, or waits. Never exceeds the limits and never
/// deadlocks; returns an empty order when a limit cannot hold one microbatch.
Order greedy(const Problem &problem, const Policy &policy);

/// Different ones that are worth a try, the most promising first.
std::span<const Policy> policies();

} // namespace pipec::schedule::search
