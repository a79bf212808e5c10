//===- Resharding.h - what it costs to hold a tensor otherwise --*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"

namespace pipec::plan {

/// Devices that divide operators among them, and what that costs.
struct ShardingGroup {
  int devices = 1;
  Link link;               ///< between neighbours, in a ring of them
  double microbatches = 1; ///< of a step: what is done once a step is shared
  double fixedSeconds = 0; ///< of an operator, however little it computes
  double updateSecondsPerByte = 0; ///< of weights, once a step
  /// Seconds that keeping a byte is taken to be worth, where memory is short;
  /// and how many bytes a weight's byte stands for.
  double secondsPerByte = 0, copies = 1;
};

/// `degree` neighbours that are one of so many replicas of a stage.
ShardingGroup groupOf(const PlanRequest &request, int degree, int replicas);

/// Seconds in which every device of a ring of n hands on (n-1)/n of `bytes`:
/// an all-gather to or a reduce-scatter of so many.
double ringSeconds(const ShardingGroup &group, int64_t bytes);

/// Seconds from one layout to another: nothing for a slice of what is there,
/// an all-gather, an all-to-all, and of partial sums an all-reduce or a
/// reduce-scatter.
double reshardSeconds(const ShardingGroup &group, int64_t bytes, Layout from,
                      Layout to);

} // namespace pipec::plan
