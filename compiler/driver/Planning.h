//===- Planning.h - strategy, stages and schedule of a model ----*- C++ -*-===//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/plan/Planner.h"
#include "compiler/plan/Profile.h"
#include "compiler/plan/WhatIf.h"
#include "compiler/schedule/Schedule.h"
#include "compiler/strategy/Strategy.h"
#include "support/Failure.h"

#include <functional>
#include <optional>
#include <vector>

namespace pipec {

/// What was decided for a model on a cluster.
struct Decision {
  const strategy::StrategyRow *strategy = nullptr;
  plan::PlanRequest request;
  plan::PlanResult result;
  schedule::Schedule schedule;
  int slices = 1; ///< pieces of a sequence, stages for each of them
  std::vector<std::string> notes;
  std::vector<int64_t> cuts() const;
  /// Those that keep their inputs alone, of each piece.
  std::vector<int64_t> recomputedStages() const;
  bool recomputesAll() const;
  /// As a row of what-if tables; the strategy as --strategy names it.
  plan::Replanned replanned(const CompileOptions &options) const;
};

/// The pieces of a sequence that a strategy which these options allow needs, 1
/// where none does. Throws Failure(Usage).
int slicesAsked(const CompileOptions &options);

/// The devices that the options name.
plan::Topology topologyOf(const CompileOptions &options);

/// What this machine computes of a product at a time.
plan::ProductTile productTile();

/// Servers like this machine with so many CPU ranks ("NxM"), for what measures
/// them: with a roofline for all that is to be timed.
plan::Topology untimedMachines(const std::string &grid);

/// Sizes of groups that `text` asks for: a number, or auto for all powers of
/// two up to a server. Throws Failure(Exit::Usage) for a number that does not
/// divide a server's devices, and where ranks have no core of their own.
std::vector<int> groupSizes(const std::string &text,
                            const plan::Topology &topology);

/// What planning needs to know beside the options and the costs.
struct ModelFacts {
  plan::Topology topology;
  int64_t microbatchSize = 1;
  double optimizerBytes = 0; ///< state per byte of trained weights
  std::vector<std::string> notes = {};
  /// CostGraph::repeats of stages that compute activations again, found when it
  /// is first called; may be empty.
  std::function<std::vector<plan::CostStash>()> repeats{};
};

/// Bytes of a device that a plan may take: --memory-limit, else the device's.
int64_t deviceLimit(const CompileOptions &options,
                    const plan::Topology &topology);

/// Chooses stages and replicas for the strategy asked for; for `auto` the best
/// synchronous one. With --recompute auto stages compute their activations
/// again where memory asks for it. Throws Failure(Usage, NoFit, BadModel,
/// BadPlan).
Decision decide(const CompileOptions &options, const plan::CostGraph &graph,
                const ModelFacts &facts);

/// decide(), and where nothing fits by the estimate what does without that of
/// what tasks work in, as a compile by a strategy's name tries it.
plan::Replanned planLikeCompile(CompileOptions options,
                                const plan::CostGraph &graph,
                                const ModelFacts &facts);

/// These options, as the user gave them, with the microbatches, the limit and
/// the number of devices of `changed`; stages by hand are dropped where the
/// devices change.
CompileOptions optionsUnder(const CompileOptions &options,
                            const ModelFacts &facts,
                            const plan::PlanRequest &changed);

/// How a strategy with an order of its own is asked for that was run in such
/// steps; none where its order is searched or sliced.
std::optional<plan::PlanRequest> requestAsRun(const strategy::StrategyRow &row,
                                              const CompileOptions &options,
                                              const plan::CostGraph &graph,
                                              const ModelFacts &facts,
                                              const plan::MeasuredStep &step);

/// Whether other stages, schedules or recomputation may do what this cannot;
/// anything else is a mistake of the user's or ours.
bool isRefusal(const Failure &failure);

/// decide() for a program that is run and not trained: forwards in microbatch
/// order. On CPUs one stage a rank, unless the options say otherwise. With
/// `ranks`, on exactly so many ranks, whatever the options say of stages.
Decision decideForward(const CompileOptions &options,
                       const plan::CostGraph &graph, const ModelFacts &facts,
                       std::optional<int> ranks = std::nullopt);

} // namespace pipec
