//===- SharedWeights.h - weights that several stages hold -------*- C++ -*-===//
//
// Copies of a trainable weight sum their gradients before each of them is
// updated. Where steps have no end a stage updates after one microbatch of each
// of its replicas: copies in stages of unequal replicas would never meet.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Planner.h"

#include <optional>
#include <span>
#include <string>

namespace pipec::plan {

/// Says which weight, and which stages (first nodes and replicas), can not be
/// updated together; nothing where all can.
std::optional<std::string> unequalCopies(const PlanRequest &request,
                                         std::span<const size_t> starts,
                                         std::span<const int> replicas);

/// Whether unequal replicas may divide a weight for some cuts.
bool sharesWeights(const CostGraph &graph);

} // namespace pipec::plan
