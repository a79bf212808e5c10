//===- PlanVerifier.h - trusts nothing the planner says ---------*- C++ -*-===//
//
// Recomputes a plan's coverage, costs, memory and step time from the graph
// with its own plain code: no interval sums, no generator-side facts beyond the
// strategy's formulas, no shared simulator.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// Throws Failure(Exit::Internal) naming the first disagreement.
void verifyPlan(const PlanRequest &request, const PlanResult &result);

} // namespace pipec::plan
