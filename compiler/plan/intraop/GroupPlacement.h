//===- GroupPlacement.h - where groups of devices lie -----------*- C++ -*-===//
#pragma once

#include "compiler/plan/Topology.h"

#include <vector>

namespace pipec::plan {

/// The replicas of a stage: groups of `degree` neighbours.
struct StageGroups {
  int replicas = 1, degree = 1;
};

/// The first device of every group of every stage, no link in a group being
/// slower than in one that begins at device 0, as groups are priced: one stage
/// after the other, or, where a group would straddle two servers so, the
/// largest groups first, each as near to its neighbours in the pipeline as
/// there is room. Empty where neither is possible; sizes that divide a server's
/// devices and each other always have a place.
std::vector<std::vector<int>> placeGroups(const Topology &topology,
                                          const std::vector<StageGroups> &all);

} // namespace pipec::plan
