//===- CutStates.h - the places where a profile can be cut ------*- C++ -*-===//
//
// A cut is a closed set of nodes: with a node, everything before it. All of
// them when there are few enough, of a profile without free nodes
// (MergedProfile.h); otherwise some (SomeClosedSets.h).
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/MergedProfile.h"
#include "compiler/plan/published/Supersets.h"

#include <memory>

namespace pipec::published {

struct CutStates {
  /// Sums over the nodes of a state: seconds, weight bytes, bytes of weights
  /// and outputs together; bytes of outputs with a consumer outside. States
  /// ascend in seconds, from the empty set to everything.
  std::vector<double> seconds, weights, kept, cut;
  BitRows sets;                                 ///< of groups
  std::shared_ptr<const MergedProfile> profile; ///< of groups
  Supersets above;                              ///< proper ones of each state
  bool complete = false;                        ///< all closed sets are there

  size_t size() const { return seconds.size(); }
  /// Profile nodes in state b and not in a, in file order.
  std::vector<int> between(size_t a, size_t b) const;
  /// These states alone, which ascend from 0 to the last.
  CutStates only(const std::vector<size_t> &chosen) const;
};

/// At most so many states, the first and the last among them: of equal shares
/// of the others the cheapest cuts.
std::vector<size_t> spread(const CutStates &states, size_t most);

/// At most `limit` states: all, or some.
CutStates cutStates(const PipeDreamProfile &profile, size_t limit,
                    bool memoryLimited = false);

/// At most `limit` other states, among them these of `states`, which lie one
/// above the other from the first to the last: all near them in the sense of
/// `round` (nearSets).
CutStates nearStates(const CutStates &states, const std::vector<size_t> &cuts,
                     size_t limit, int round);

} // namespace pipec::published
