//===- PlanBound.h - what makes a PipeDream plan's step long ----*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PipeDreamSearch.h"

#include <string>

namespace pipec::published {

struct CutStates;

/// What the slowest stage of any level of a plan of the published space waits
/// for (PIPEDREAM.md, section 3), in milliseconds a minibatch: "compute of
/// stage 2", "the cut between stages 1 and 2: 7.668 ms" or "stage 0 on 4
/// machines: 1.25 ms of compute and 6.1 ms of gradient exchange".
std::string boundOf(const CutStates &states,
                    const std::vector<PipeDreamLevel> &levels,
                    const PipeDreamPlan &plan);

} // namespace pipec::published
