//===- OpChoices.h - what a group can do with an operator -------*- C++ -*-===//
#pragma once

#include "compiler/plan/CostGraph.h"
#include "compiler/plan/intraop/Resharding.h"

namespace pipec::plan {

/// \name What a choice takes and leaves
/// @{
/// How it reads an operand.
Layout readsAs(const ShardedOp &op, const OpSharding &choice, size_t operand);
/// What it leaves of an operand's gradient.
Layout gradientAs(const ShardedOp &op, const OpSharding &choice,
                  size_t operand);
/// How it leaves a result.
Layout makesAs(const ShardedOp &op, const OpSharding &choice, size_t result);
/// @}

/// All that `devices` can do: everyone all of it, one for each factor that they
/// divide, and of sums one for each dimension along which they may stay
/// divided.
std::vector<OpSharding> choicesOf(const ShardingGraph &graph, size_t node,
                                  int devices);
/// The layouts in which some reader could want a weight, kWhole first.
std::vector<Layout> layoutsOf(const ShardingGraph &graph, size_t weight,
                              int devices);

struct OpSeconds {
  double forward = 0, backwardInput = 0, backwardWeight = 0;
  double total() const { return forward + backwardInput + backwardWeight; }
};

/// A node's own work on a device of the group, and the sum of its results:
/// forward an all-reduce, or, where they stay divided, a reduce-scatter and an
/// all-gather of their gradient.
OpSeconds ownSeconds(const CostGraph &graph, size_t node,
                     const OpSharding &choice, const ShardingGroup &group);

} // namespace pipec::plan
