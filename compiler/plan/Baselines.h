//===- Baselines.h - what the obvious plans would have cost -----*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// Data parallelism, an even split, GPipe and one device, priced by the same
/// model for the same microbatches. For a strategy without a barrier the step
/// is a microbatch, and the others are charged their time per microbatch.
std::vector<Baseline> priceBaselines(const PlanRequest &request,
                                     const PlanResult &chosen);

/// First nodes of `count` stages with equally many nodes each.
std::vector<size_t> evenStarts(const CostGraph &graph, size_t count);

} // namespace pipec::plan
