//===- StepVerifier.h - the step time, computed again -----------*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// Recomputes a plan's step from its stages: for a synchronous strategy the
/// longest path through its order, whatever its placement, plus all-reduces and
/// updates; without a barrier the period no part of the pipeline can beat. Of
/// ranks that share cores, the bounds between which any fair turn-taking ends.
/// O(actions); orders above 5 million actions are left to the checks of their
/// parts. Throws Failure(Exit::Internal) naming the disagreement.
void verifyStep(const PlanRequest &request, const PlanResult &result);

} // namespace pipec::plan
