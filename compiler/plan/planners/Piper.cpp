//===- Piper.cpp - Piper's optimizer on a model ---------------------------===//
//
// The chain as a Piper instance: one device per replica, two variants a layer
// (plain, recomputed), one bandwidth, the slowest there is. Stages whose plain
// variants fit run plain; memory is then judged exactly by the strategy.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/planners/Planners.h"
#include "compiler/plan/published/PiperSearch.h"

#include <algorithm>

namespace pipec::plan {

namespace {

published::PiperVariant variantOf(const PlanRequest &request,
                                  const StageCost &cost, bool again) {
  published::PiperVariant v;
  v.id = again ? "recompute" : "plain";
  v.seconds = cost.seconds() + (again ? cost.forwardSeconds : 0);
  v.weights = static_cast<double>(cost.parameterBytes);
  v.memoryPerMicrobatch =
      static_cast<double>(again ? cost.receiveBytes : cost.stashBytes);
  // Piper's double buffering stands for versions; gradients and optimizer state
  // are what it leaves out.
  const double versions = request.strategy.synchronous ? 1 : 2,
               others = request.strategy.gradientCopies +
                        request.optimizerBytesPerParameterByte;
  v.memoryFixed =
      versions * static_cast<double>(cost.weightBytes()) +
      others * static_cast<double>(cost.parameterBytes) +
      static_cast<double>(cost.stateBytes) +
      (again ? static_cast<double>(cost.againBytes - cost.workspaceBytes) : 0);
  return v;
}

} // namespace

Proposal proposePiper(const PlanRequest &request, const StepModel &model) {
  expectFreeShape(request, "piper");
  Layers layers = layersOf(request, model, 150);
  published::PiperGraph graph;
  int n = static_cast<int>(layers.count());
  graph.dag = published::Dag(n);
  graph.bytesIn.resize(layers.count()), graph.bytesOut.resize(layers.count());
  graph.devices = request.topology.devices();
  graph.microbatches = request.strategy.synchronous
                           ? request.microbatches
                           : std::max(request.microbatches, graph.devices);
  graph.memory =
      model.limit() == INT64_MAX ? 1e18 : static_cast<double>(model.limit());
  graph.bandwidth = request.topology.levels.front().bandwidth;
  for (const Level &level : request.topology.levels)
    graph.bandwidth = std::min(graph.bandwidth, level.bandwidth);
  for (int v = 0; v < n; ++v) {
    published::PiperNode node;
    node.id = std::to_string(v);
    auto &variants = node.variants[1];
    const StageCost &cost = layers.costs[static_cast<size_t>(v)];
    if (request.recompute != Recompute::Full)
      variants.push_back(variantOf(request, cost, false));
    if (request.recompute != Recompute::None)
      variants.push_back(variantOf(request, cost, true));
    for (auto &variant : variants) {
      variant.syncIn.assign(v > 0 ? 1 : 0, 0);
      variant.syncOut.assign(v + 1 < n ? 1 : 0, 0);
    }
    graph.nodes.push_back(std::move(node));
    if (v > 0) {
      graph.dag.edge(v - 1, v);
      double bytes = static_cast<double>(cost.receiveBytes);
      graph.bytesIn[v] = {bytes};
      graph.bytesOut[v - 1] = {bytes};
    }
  }
  graph.dag.finish();
  published::PiperPlan plan = published::searchPiper(graph, 200);
  if (plan.stages.empty())
    return {};
  Split split;
  for (const published::PiperPlanStage &stage : plan.stages) {
    split.starts.push_back(
        layers.starts[static_cast<size_t>(stage.nodes.front())]);
    split.replicas.push_back(stage.replicas);
  }
  split.recompute = chooseRecompute(model, split);
  return {{split}, ""};
}

} // namespace pipec::plan
