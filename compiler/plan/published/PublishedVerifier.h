//===- PublishedVerifier.h - recompute a plan from its nodes ----*- C++ -*-===//
//
// Plain sums over node lists, sharing nothing with the searches. Each function
// throws Failure(Exit::Internal) when a plan misses or repeats a node, breaks
// the order, exceeds memory, or costs more than it says.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/PipeDreamSearch.h"
#include "compiler/plan/published/PiperSearch.h"
#include "compiler/plan/published/PlacementSearch.h"

namespace pipec::published {

/// The nested plan's slowest stage in seconds, from the profile's nodes.
double verifyPipeDream(const PipeDreamProfile &profile, const CutStates &states,
                       const std::vector<PipeDreamLevel> &levels,
                       const PipeDreamPlan &plan, bool straddles,
                       double limit = 0);

double verifyPlacement(const PlacementGraph &graph, const PlacementUnits &units,
                       const PlacementMachine &machine,
                       const PlacementPlan &plan, bool contiguous);

double verifyPiper(const PiperGraph &graph, const PiperPlan &plan);

} // namespace pipec::published
