//===- PipeDreamProfile.h - PipeDream's layer profiles ----------*- C++ -*-===//
//
// The text its profiler writes:
//   node3 -- Conv2d(…) -- forward_compute_time=1.2, backward_compute_time=2.4,
//            activation_size=100.0, parameter_size=4.0 [-- stage_id=0]
//   <TAB>node3 -- node4
// Times are milliseconds, sizes bytes for a whole minibatch; a list of sizes
// [a; b] is summed.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/Dag.h"

#include <string>
#include <vector>

namespace pipec::published {

struct ProfileNode {
  std::string id, description;
  double forwardMs = 0, backwardMs = 0;
  double activationBytes = 0, parameterBytes = 0;
  double milliseconds() const { return forwardMs + backwardMs; }
};

struct PipeDreamProfile {
  std::vector<ProfileNode> nodes; ///< in file order, without those left out
  Dag dag;
  /// Ids of `Input…` sources and then of `__getitem__…` sinks: PipeDream's
  /// optimizer does not place them, whatever time they take.
  std::vector<std::string> inputs, unread;
  /// Of each of them, inputs first: the first node that reads it, or the last
  /// one that it reads; -1 where that is left out as well.
  std::vector<int> besides;
};

/// Throws Failure(Exit::BadModel) with `origin`, line and reason: a malformed
/// line, a missing or non-finite or negative number, an unknown or repeated id,
/// a cycle, parts that are not connected.
PipeDreamProfile parsePipeDreamProfile(const std::string &text,
                                       const std::string &origin);

} // namespace pipec::published
