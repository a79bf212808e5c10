//===- Profile.h - measured costs in place of analytic ones -----*- C++ -*-===//
//
// The file that `pipec-run --profile-out` writes and `--profile` reads:
//   {"version": 1, "microbatch_size": 4,
//    "nodes":  [{"id": "12", "forward_s": …, "backward_input_s": …,
//    "backward_weight_s": …}], "stages": [{"first_node": 0, "last_node": 40,
//    "forward_s": …, …, "update_s": …}]}
// Either list may be missing, and "update_s", the optimizer's time in a step. A
// stage's times are spread over its nodes as the analytic model weighs them; a
// node's own entry wins.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/CostGraph.h"

#include <string>
#include <vector>

namespace pipec::plan {

struct MeasuredTimes {
  double forwardSeconds = 0, backwardInputSeconds = 0,
         backwardWeightSeconds = 0;
};
struct MeasuredNode {
  std::string id;
  MeasuredTimes times;
};
struct MeasuredStage {
  size_t firstNode = 0, lastNode = 0;
  MeasuredTimes times;
  double updateSeconds = 0; ///< the optimizer's, a step; 0: not measured
};
struct Profile {
  int microbatchSize = 0; ///< 0: not said
  std::vector<MeasuredNode> nodes;
  std::vector<MeasuredStage> stages;
};

/// Throws Failure(Exit::NoInput) or Failure(Exit::BadPlan) with the place and
/// the reason.
Profile readProfile(const std::string &path);
Profile parseProfile(const std::string &json, const std::string &origin);
std::string writeProfile(const Profile &profile);

/// Replaces the graph's times. Throws Failure(Exit::BadPlan) when the profile
/// names a node the graph has not, an interval outside it, overlapping stages,
/// or another microbatch size.
void applyProfile(const Profile &profile, int microbatchSize, CostGraph &graph);

} // namespace pipec::plan
