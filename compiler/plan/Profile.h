//===- Profile.h - measured costs in place of analytic ones -----*- C++ -*-===//
//
// The file that `pipec-run --profile-out` writes and `--profile` reads:
//   {"version": 1, "model_sha256": …, "device": "cpu", "threads": 1,
//    "microbatch_size": 4, "others_share": 0.48,
//    "stages": [{"first_node": 0, "last_node": 40, "forward_s": …,
//                "backward_input_s": …, "backward_weight_s": …,
//                "update_s": …}],
//    "step": {"strategy": "1f1b", "microbatches": 8, "replicas": [1],
//             "recompute": [false], "seconds": …},
//    "nodes": [{"id": "12", "forward_s": …, …}]}
// A run writes "stages" alone. Either list may be missing, as long as every
// node has its times from one of them; so may "update_s", the optimizer's time
// in a step, the step in which the stages were measured (FitStep.h,
// FarStash.h), what says where the times are from, and the share of the cores
// that other programs had meanwhile (CoreUse.h; 0 when it is left out). A
// stage's times are spread over its nodes as the analytic model weighs them; a
// node's own entry wins.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/CostGraph.h"

#include <optional>
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
/// What a profile was measured with, or is asked for.
struct ProfileOrigin {
  int microbatchSize = 0;  ///< 0: not said
  int threads = 0;         ///< of a rank; 0: not said
  std::string device;      ///< DeviceModel::kind; empty: not said
  std::string modelSha256; ///< of the ONNX file; empty: not said
  std::string precision;   ///< of contractions; empty: not said
};
/// The usual step of the run that measured the stages.
struct MeasuredStep {
  std::string strategy;
  int microbatches = 0;
  std::vector<int> replicas; ///< of every stage
  std::vector<bool> recompute; ///< of every stage
  double seconds = 0;
};
struct Profile {
  std::string file; ///< where it was read; empty: nowhere
  ProfileOrigin origin;
  std::vector<MeasuredNode> nodes;
  std::vector<MeasuredStage> stages;
  std::optional<MeasuredStep> step;
  double othersShare = 0; ///< of the machine's cores, while it was measured
};

/// Throws Failure(Exit::NoInput) or Failure(Exit::BadPlan) with the place and
/// the reason.
Profile readProfile(const std::string &path);
Profile parseProfile(const std::string &json, const std::string &origin);
std::string writeProfile(const Profile &profile);

/// Replaces the graph's times. Throws Failure(Exit::BadPlan) when the profile
/// is of another model, microbatch size or kind of device, names a node the
/// graph has not, an interval outside it or overlapping stages, or leaves a
/// node without times. Returns remarks where threads differ and where other
/// programs had the cores meanwhile.
std::vector<std::string> applyProfile(const Profile &profile,
                                      const ProfileOrigin &asked,
                                      CostGraph &graph);

} // namespace pipec::plan
