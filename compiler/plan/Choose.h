//===- Choose.h - the best of several ways to train -------------*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// The fastest plan among several strategies. `result.runnerUp` says what the
/// best of the others would have cost.
struct StrategyChoice {
  size_t chosen = 0; ///< index into the requests
  PlanResult result;
  /// Predicted step seconds of every request, NaN where it does not fit or
  /// apply.
  std::vector<double> stepSeconds;
};

/// Plans every request and keeps the fastest result; of equally fast ones that
/// with the smaller peak, then the earlier. With a request for data parallelism
/// among them the choice is never predicted slower than that, and never slower
/// than an even split of its own shape. Requests differ in strategy and in what
/// goes with it; baselines are priced for the chosen one alone. Throws what the
/// first request threw when none works.
StrategyChoice chooseStrategy(const std::vector<PlanRequest> &requests);

} // namespace pipec::plan
