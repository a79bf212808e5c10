//===- Exact.h - proven optima of small problems ----------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

namespace pipec::schedule::search {

struct Exact {
  Order order;         ///< the best found, empty when none beats the incumbent
  Result result;       ///< its cost
  bool proven = false; ///< nothing shorter exists on this placement; never of
                       ///< a span, for which a late start can be better
  long long nodes = 0;
};

/// Branch and bound over all orders on the problem's placement, looking for one
/// shorter than `incumbent`. Gives up after `mostNodes` nodes; then `proven` is
/// false and lowerBound() still holds.
Exact solveExactly(const Problem &problem, double incumbent,
                   long long mostNodes);

} // namespace pipec::schedule::search
