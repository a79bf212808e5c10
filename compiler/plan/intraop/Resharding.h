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
  /// how many bytes a weight's byte stands for, and how many of these are
  /// gradients.
  double secondsPerByte = 0, copies = 1, gradientCopies = 0;
};

/// `degree` neighbours that are one of so many replicas of a stage. Wherever
/// they are placed their links are those of the first ones (GroupPlacement.h).
ShardingGroup groupOf(const PlanRequest &request, int degree, int replicas);

/// Seconds in which every device of a ring of n hands on (n-1)/n of `bytes`:
/// an all-gather to or a reduce-scatter of so many.
double ringSeconds(const ShardingGroup &group, int64_t bytes);

/// Seconds from one layout to another: nothing for a slice of what is there,
/// an all-gather, an all-to-all, and of partial sums an all-reduce or a
/// reduce-scatter.
double reshardSeconds(const ShardingGroup &group, int64_t bytes, Layout from,
                      Layout to);

/// Bytes that each of so many devices sums a weight's gradients in, beside a
/// slice like that of the weight: what readers leave otherwise is summed over a
/// step's microbatches as they leave it, addends as wholes, and brought to the
/// weight's layout once.
int64_t addedGradientBytes(int64_t bytes, Layout leaves, Layout weight,
                           int devices);

/// A slice, rounded up.
inline int64_t sliceBytes(int64_t bytes, int devices) {
  return (bytes + devices - 1) / devices;
}

} // namespace pipec::plan
