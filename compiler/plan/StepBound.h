//===- StepBound.h - what no plan of a request can beat ---------*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// A lower bound of the step that makePlan(request) can predict, whatever it
/// chooses: the work divided by what computes, the largest part that cannot be
/// divided, the most even cut into as many stages as devices where stages have
/// one replica each, one microbatch's way, and the fill and drain of a straight
/// pipeline with whole backwards. O(nodes). What cannot be among the best need
/// not be planned.
double stepBound(const PlanRequest &request);

} // namespace pipec::plan
