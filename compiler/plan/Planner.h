//===- Planner.h - from a cost graph to stages, replicas, devices -*- C++ -*-=//
//
// makePlan() checks the request, searches, and has the independent verifier
// (PlanVerifier.h) recompute what it returns. It is deterministic.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/CostGraph.h"
#include "compiler/plan/StrategyFacts.h"
#include "compiler/plan/Topology.h"

#include <optional>
#include <string>
#include <vector>

namespace pipec::plan {

enum class Recompute { None, Full, Auto };

struct PlanRequest {
  CostGraph graph;
  Topology topology;
  StrategyFacts strategy;
  int microbatches = 1;   ///< in one optimizer step, over the whole cluster
  int microbatchSize = 1; ///< samples; only samples/s depends on it
  /// Optimizer state per byte of trainable weights: 0 SGD, 1 momentum, 2 Adam.
  double optimizerBytesPerParameterByte = 0;
  /// Per device; 0 takes the topology's device, negative means no limit.
  int64_t memoryLimit = 0;
  /// Bytes that baselines and second place keep to, where the search is given
  /// more or less than there is; 0: the same.
  int64_t trueLimit = 0;

  /// How many stages: nothing = the planner's choice.
  std::optional<int> stages;
  /// A hand-written split: first node of every stage, starting with 0. Not
  /// searched, only evaluated.
  std::vector<size_t> cuts;
  /// Replicas of each stage, by hand; empty = the planner's choice (one each
  /// when `replication` is off).
  std::vector<int> replicas;
  bool replication = true;
  /// A row of Planners.def: how stages and replicas are chosen.
  std::string planner = "auto";
  /// How many devices may divide the operators of a stage among them
  /// (intraop/); ascending.
  std::vector<int> tensorParallel{1};
  /// Use every device even when fewer would do (fixed rank counts), but for
  /// pipelines that have no orders of so few microbatches.
  bool useAllDevices = false;
  Recompute recompute = Recompute::None;
  /// The update needs the norm of all gradients. Without a barrier a device
  /// then keeps what an update may have to go back to.
  bool clips = false;
  /// Share of the usual search effort, which is counted in simulated actions,
  /// so that results do not depend on the machine's speed.
  double effort = 1;
  /// Below this share a plan is one of many that are glanced at.
  static constexpr double kGlance = 1.0 / 32;
  /// When nothing fits: also search for what would, for the message.
  bool explainNoFit = true;
  /// Of that the limit that would do alone.
  bool namesLimitAlone = false;
  /// Also price data parallelism, the even split, GPipe … for comparison.
  bool baselines = true;
};

/// Bytes on each device of a stage at its peak.
struct MemoryParts {
  int64_t weights = 0; ///< all live versions
  int64_t state = 0;   ///< frozen weights, running statistics
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t stash = 0;    ///< in-flight microbatches' activations
  int64_t handover = 0; ///< from input to weight gradients
  int64_t messages = 0; ///< received, to be sent, and data
  int64_t workspace = 0;
  int64_t sums = 0; ///< others' gradients while they are summed
  int64_t undo = 0; ///< weights and optimizer state from before an update that
                    ///< may not stand
  int64_t total() const {
    return weights + state + gradients + optimizer + stash + handover +
           messages + workspace + sums + undo;
  }
};

struct StagePlan {
  size_t firstNode = 0, lastNode = 0;
  int replicas = 1;
  std::vector<int> devices; ///< global device numbers, one per replica
  // Seconds per microbatch on one device.
  double forwardSeconds = 0, backwardInputSeconds = 0,
         backwardWeightSeconds = 0;
  /// Of the forward, and as much of both backward tasks: see FarStash.h.
  double farStashSeconds = 0;
  bool recompute = false; ///< the forward runs again before the backward
  int64_t parameterBytes = 0;
  int64_t receiveBytes = 0;         ///< forward, per microbatch
  int64_t receiveGradientBytes = 0; ///< backward, per microbatch
  double allReduceSeconds = 0;      ///< gradients of the replicas, per step
  int inFlight = 1; ///< microbatches whose stash one replica holds at the peak
  int versions = 1; ///< weight versions one replica holds at the peak
  int betweenHalves = 1; ///< microbatches between input and weight gradients
  MemoryParts memory;
  /// A replica is a group of so many neighbours, of which `devices` has the
  /// first.
  StageSharding sharding;
};

struct Baseline {
  std::string name; ///< "data parallel", "even split", "gpipe", …
  bool fits = false;
  double stepSeconds = 0; ///< meaningful when it fits
  int64_t peakBytes = 0;
  std::string note; ///< why not, when it does not fit or does not apply
};

struct PlanResult {
  std::vector<StagePlan> stages;
  double stepSeconds = 0; ///< one optimizer step
  double samplesPerSecond = 0;
  double bubble = 0;              ///< idle share of all devices' time in a step
  int64_t communicationBytes = 0; ///< per step, over the whole cluster
  int bottleneckStage = 0;
  std::string bottleneck; ///< which stage, and whether compute or a link binds
  std::vector<Baseline> baselines;
  std::string runnerUp;     ///< what second place would have cost; may be empty
  bool limitBinds = false;  ///< memory may have kept the search from plans
  int64_t simulations = 0;  ///< of splits, in the search; informative
  double searchSeconds = 0; ///< informative; not part of any written plan
};

/// Throws Failure: Exit::BadModel (graph), Exit::Usage (impossible request),
/// Exit::NoFit (nothing fits: by how much, and what would make it fit).
PlanResult makePlan(const PlanRequest &request);

/// Prices exactly this split and these replicas (no search). `fits` of the
/// result's memory is the caller's to check with memoryLimitOf().
PlanResult evaluatePlan(const PlanRequest &request,
                        const std::vector<size_t> &firstNodes,
                        const std::vector<int> &replicas,
                        const std::vector<bool> &recompute = {});

/// "3-1": the replicas of each stage.
std::string replicasText(const std::vector<int> &replicas);

/// The same in a line: of many stages "64 x 16", or "3 x 8, 1 x 4, …".
std::string shortReplicas(const std::vector<int> &replicas);

/// The limit in bytes that the request means; INT64_MAX for none.
int64_t memoryLimitOf(const PlanRequest &request);

} // namespace pipec::plan
