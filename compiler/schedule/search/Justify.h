//===- Justify.h - fill holes forwards and backwards in time ----*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

namespace pipec::schedule::search {

/// Random departures from an order, to leave a local optimum.
struct Shake {
  unsigned long long state = 1; ///< of the random numbers; advances
  double rate = 0; ///< part of the decisions that take any ready task
  double from = 0, to = kNever; ///< when, in time as the pass goes
};

/// Carried from a pass to the next one in the other direction: where the one
/// has put a task is how late the other may start it without making the order
/// longer.
struct Times {
  std::vector<double> starts; ///< by task, in the time of the pass before
  double end = 0;             ///< of that pass
  bool known = false;         ///< off: this pass keeps to true gaps
};

/// Runs the order; where a device would wait, the first task of its list that
/// is ready, fits the gap and keeps memory within the limit is taken earlier.
/// `backwards` does the same with time reversed, which moves tasks later. The
/// order must be valid and fit. The makespan (for Metric::Span: the span) does
/// not grow, unless shaken. An empty order means that the given one deadlocks.
Order justify(const Problem &problem, const Order &order, bool backwards,
              Result *result = nullptr, Shake *shake = nullptr,
              Times *times = nullptr);

/// Passes in both directions, at most `rounds` of them and as long as two in a
/// row bring something; the best order met and its cost.
/// `passes`, when given, counts passes made.
Order improve(const Problem &problem, const Order &order, int rounds,
              Result &result, int *passes = nullptr);

} // namespace pipec::schedule::search
