//===- Exact.h - proven optima of small problems ----------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

namespace pipec::schedule::search {

struct Exact {
  Order order;         ///< the best found, empty when none beats the incumbent
  Result result;       ///< its cost
  bool proven = false; ///< nothing better exists on this placement
  long long nodes = 0;
};

/// Branch and bound over all orders on the problem's placement, looking for one
/// of a smaller problem.metric than `incumbent`. Gives up after `mostNodes`
/// nodes; then `proven` is false and lowerBound() still holds.
Exact solveExactly(const Problem &problem, double incumbent,
                   long long mostNodes);

/// Where the optimum lies, for problems that solveExactly gives up.
struct Bracket {
  double bound = 0; ///< no order costs less
  Exact best;       ///< as of solveExactly; proven when the bound is its cost
};

/// Halves the interval from lowerBound() to `incumbent` several times: a branch
/// and bound that finds nothing shorter than a value and ends has proven it a
/// bound. `mostNodes` for each.
Bracket bracket(const Problem &problem, double incumbent, long long mostNodes);

} // namespace pipec::schedule::search
