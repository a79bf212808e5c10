//===- CutStates.h - the places where a profile can be cut ------*- C++ -*-===//
//
// A cut is a closed set of nodes: with a node, everything before it. All of
// them when there are few enough; otherwise those that linear orders pass
// through. Free nodes (no time, no weights) that no optimal cut separates from
// a neighbour are merged with it first, which keeps every optimum:
//  - a free node whose only source has it as only consumer and whose output is
//    no larger belongs with the source: moving it there never adds bytes;
//  - a free node with one consumer whose output is no smaller than all its
//  inputs
//    together belongs with the consumer, for the same reason;
//  - a free sink with one source belongs with the source.
// Under a memory limit a node that has outputs is not free.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/PipeDreamProfile.h"

namespace pipec::published {

struct CutStates {
  /// Sums over the nodes of a state: seconds, weight bytes, bytes of weights
  /// and outputs together; bytes of outputs with a consumer outside. States
  /// ascend in seconds, from the empty set to everything.
  std::vector<double> seconds, weights, kept, cut;
  BitRows sets;                         ///< of groups
  std::vector<std::vector<int>> groups; ///< profile nodes merged into each
  std::vector<std::vector<uint32_t>>
      above;             ///< proper supersets of each state, ascending
  bool complete = false; ///< all closed sets are there

  size_t size() const { return seconds.size(); }
  /// Profile nodes in state b and not in a, in file order.
  std::vector<int> between(size_t a, size_t b) const;
  /// These states alone, which ascend from 0 to the last.
  CutStates only(const std::vector<size_t> &chosen) const;
};

/// At most so many states, the first and the last among them: of equal shares
/// of the others the cheapest cuts.
std::vector<size_t> spread(const CutStates &states, size_t most);

/// At most `limit` states.
CutStates cutStates(const PipeDreamProfile &profile, size_t limit,
                    bool memoryLimited = false);

} // namespace pipec::published
