//===- OrderForCosts.h - a schedule for stages that are known ---*- C++ -*-===//
//
// Searched schedules depend on what the stages cost, stages on the schedule.
// The planner cuts the model for the schedule of equal costs; this finds the
// order for the stages that came out, and prices them again under it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Choose.h"

namespace pipec::plan {

/// The schedule of that name ("auto" too) for the stages of `result`, within
/// the memory that the rest of them leaves. Throws Failure(NoFit) when none
/// fits.
OrderedPlan orderForCosts(const std::string &schedule,
                          const PlanRequest &request, const PlanResult &result);

/// Cuts the model for the request's own order, which knows no costs, and finds
/// the order for what comes out. Where memory binds, or nothing fits, so it does
/// for the cut of devices without a limit: the order that keeps to the limit may
/// have fewer microbatches in flight instead. The faster one; where neither
/// fits, throws as makePlan() and orderForCosts() do for the first.
OrderedPlan cutAndOrder(const std::string &schedule,
                        const PlanRequest &request);

} // namespace pipec::plan
