//===- Choose.h - the best of several ways to train -------------*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

#include <functional>

namespace pipec::plan {

/// What a user sees of a plan: its strategy and shape, and what it takes.
struct SeenPlan {
  size_t contender = 0; ///< the request, counted over all comparisons
  std::string strategy;
  double seconds = 0; ///< a microbatch
  double stepSeconds = 0;
  std::vector<size_t> starts;
  std::vector<int> replicas;
  std::vector<bool> recompute;
};

/// The fastest plan among several strategies. `result.runnerUp` says what the
/// best of the others would have cost.
struct StrategyChoice {
  size_t chosen = 0;   ///< index into the requests
  PlanRequest request; ///< as it was planned
  PlanResult result;
  /// Predicted step seconds of every request; NaN where it does not fit or
  /// apply, and where its lower bound is above the second best.
  std::vector<double> stepSeconds;

  SeenPlan own;               ///< the result; no stages where nothing fits
  std::vector<SeenPlan> seen; ///< what was compared
  size_t contenders = 0;      ///< so many requests were
};

/// A plan, and the request that it answers (an order may have been found for
/// it).
struct OrderedPlan {
  PlanRequest request;
  PlanResult result;
};

/// Plans the request of that index. In a comparison the first call ends before
/// there are others; these may be several at a time, in threads of their own,
/// of an index each.
using PlanFunction =
    std::function<OrderedPlan(size_t index, const PlanRequest &request)>;

/// No plan of the request of that index is predicted faster than so many
/// seconds.
using BoundFunction = std::function<double(size_t index)>;

/// Plans the requests, the most promising first, and keeps the fastest result;
/// of equally fast ones that with the smaller peak, then the earlier. What by
/// its lower bound (`bound`, else stepBound) is slower than the second best is
/// not planned. What has the best one's cuts, replicas, recomputation and time
/// under another name is no second place. With a request for data parallelism
/// among them the choice is never predicted slower than that, and never slower
/// than an even split of its own shape. Requests differ in strategy and in what
/// goes with it; baselines are priced for the chosen one alone. Throws what
/// makePlan says of the first request when none works.
StrategyChoice chooseStrategy(const std::vector<PlanRequest> &requests,
                              const PlanFunction &plan = {},
                              const BoundFunction &bound = {});

/// Goes on with requests for a part of the devices, whose plans leave the
/// others idle: true where one of them is faster, which then is the choice, and
/// `chosen` its index among these. Its result is that of who has this part
/// alone.
bool chooseOnFewer(const std::vector<PlanRequest> &requests,
                   StrategyChoice &choice, const PlanFunction &plan = {},
                   const BoundFunction &bound = {});

} // namespace pipec::plan
