//===- Choose.h - the best strategy for a model and a cluster ---*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// The fastest plan among several strategies. `result.runnerUp` says what the
/// best of the others would have cost.
struct StrategyChoice {
  size_t strategy = 0; ///< index into the list asked about
  PlanResult result;
  /// Predicted step seconds of every strategy, NaN where it does not fit or
  /// apply.
  std::vector<double> stepSeconds;
};

/// Plans `request` under each strategy (its own `strategy` is ignored). A plan
/// predicted slower than data parallelism or an even split is never returned
/// when those fit: both are among what is compared. Throws what the first
/// strategy threw when none works.
StrategyChoice chooseStrategy(const PlanRequest &request,
                              const std::vector<StrategyFacts> &strategies);

} // namespace pipec::plan
