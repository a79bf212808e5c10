//===- ShardedCost.h - what a stage costs whose operators are sharded -----===//
#pragma once

#include "compiler/plan/IntervalCosts.h"
#include "compiler/plan/intraop/OpChoices.h"

namespace pipec::plan {

/// A stage of nodes [first, last] as one device of a group sees it: its share
/// of the work and the group's traffic as seconds, its slices of weights and of
/// what is kept or computed again as bytes. A weight that readers want
/// otherwise than it lies is brought there once forward and once more backward,
/// and dropped after its last such reader; addends of its gradient are summed
/// whole until the step's end. What code works in, data and messages count
/// whole: between stages a value goes from every device of a group to every
/// device. `whole` is the cost on one device.
StageCost shardedCost(const CostGraph &graph, const StageCost &whole,
                      size_t first, size_t last, const StageSharding &sharding,
                      const ShardingGroup &group);

} // namespace pipec::plan
