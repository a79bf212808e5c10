//===- MergedProfile.h - a profile without free nodes -----------*- C++ -*-===//
//
// Free nodes (no time, no weights) that no optimal cut separates from a
// neighbour are merged with it, which keeps every optimum:
//  - a free node whose only source has it as only consumer and whose output is
//    no larger belongs with the source: moving it there never adds bytes;
//  - a free node with one consumer whose output is no smaller than all its
//    inputs together belongs with the consumer, for the same reason;
//  - a free sink with one source belongs with the source.
// Under a memory limit a node that has outputs is not free.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/PipeDreamProfile.h"

namespace pipec::published {

/// A group has one node whose output leaves it, the tail.
struct MergedProfile {
  Dag dag;
  std::vector<double> seconds, weights, kept, output;
  std::vector<std::vector<int>> members; ///< profile nodes, ascending
};

MergedProfile mergeFreeNodes(const PipeDreamProfile &profile,
                             bool memoryLimited);

} // namespace pipec::published
