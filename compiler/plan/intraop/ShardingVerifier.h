//===- ShardingVerifier.h - a sharded stage once more -----------*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// What sharding makes of a stage, recomputed operator by operator without the
/// planner's code (PlanVerifier.h).
struct ShardedTotals {
  double forward = 0, backwardInput = 0, weight = 0;
  int64_t savedParameters = 0, savedRounded = 0, savedState = 0, savedStash = 0;
  /// Weights that lie otherwise than in their slices, at one time the most;
  /// what their gradients are summed in beside slices; and what a device works
  /// in that computes all activations again, without the former.
  int64_t gathered = 0, addedGradients = 0, again = 0;
};

/// Failure(Exit::Internal) where the choices are none: a factor that there is
/// not or that the group does not divide, a weight in slices that are unequal.
ShardedTotals recomputeSharding(const PlanRequest &request,
                                const StagePlan &stage);

} // namespace pipec::plan
