#include "RandomGraphs.h"

#include <algorithm>

namespace pipec::plan::test {

CostGraph randomGraph(Random &random, int nodes) {
  CostGraph graph;
  for (int i = 0; i < nodes; ++i) {
    CostNode node;
    node.id = "n" + std::to_string(i);
    node.forwardSeconds = random.real(0.1, 2.0) * 1e-3;
    node.backwardInputSeconds = random.real(0.0, 2.0) * 1e-3;
    node.backwardWeightSeconds = random.real(0.0, 2.0) * 1e-3;
    node.parameterBytes = random.between(0, 5) * 1000;
    node.stateBytes = random.between(0, 3) * 10;
    node.stashBytes = random.between(0, 8) * 1000;
    node.workspaceBytes = random.between(0, 4) * 500;
    graph.nodes.push_back(node);
  }
  for (size_t i = 0; i + 1 < graph.nodes.size(); ++i) {
    CostValue value;
    value.producer = i;
    value.bytes = random.between(1, 40) * 1000;
    value.gradientBytes = value.bytes;
    value.consumers.push_back(i + 1);
    if (random.between(0, 3) == 0)
      value.consumers.push_back(static_cast<size_t>(
          random.between(static_cast<int>(i) + 1, nodes - 1)));
    graph.values.push_back(value);
  }
  auto anyNode = [&] {
    return static_cast<size_t>(random.between(0, nodes - 1));
  };
  for (int w = random.between(0, 2); w-- > 0;)
    graph.weights.push_back({"w",
                             random.between(1, 9) * 700,
                             {anyNode(), anyNode()},
                             random.between(0, 3) > 0});
  for (size_t w = 0; w < graph.weights.size(); ++w)
    if (const CostWeight &weight = graph.weights[w];
        weight.trainable && weight.bytes > 2000)
      graph.rounded.push_back({weight.bytes / 2, {weight.users.front()}, w});
  for (int s = random.between(0, 2); s-- > 0;)
    graph.stashes.push_back(
        {random.between(1, 9) * 900, {anyNode(), anyNode()}});
  for (CostStash &stash : graph.stashes)
    if (random.between(0, 1) == 0)
      stash.producer =
          *std::min_element(stash.users.begin(), stash.users.end());
  for (CostValue &value : graph.values)
    if (random.between(0, 3) == 0)
      value.keptFrom = static_cast<size_t>(
          random.between(static_cast<int>(value.producer), nodes - 1));
  for (int k = random.between(0, 3); k-- > 0;) {
    const size_t a = anyNode(), b = anyNode();
    graph.handovers.push_back(
        {std::min(a, b), std::max(a, b), random.between(1, 9) * 800});
    graph.inputs.push_back({random.between(1, 9) * 70, {anyNode()}});
    graph.scratch.push_back(
        {std::min(a, b), std::max(a, b), random.between(1, 9) * 600});
    graph.furtherUses.push_back(
        {std::min(a, b), std::max(a, b), random.between(1, 9) * 700});
    if (random.between(0, 1) == 0)
      graph.repeats.push_back({random.between(1, 9) * 1100, {a, b}, anyNode()});
  }
  return graph;
}

CostGraph uniformChain(int nodes, double seconds, int64_t activationBytes,
                       int64_t parameterBytes) {
  CostGraph graph;
  for (int i = 0; i < nodes; ++i) {
    CostNode node;
    node.id = "layer" + std::to_string(i);
    node.forwardSeconds = seconds;
    node.backwardInputSeconds = seconds;
    node.backwardWeightSeconds = seconds;
    node.parameterBytes = parameterBytes;
    node.stashBytes = activationBytes;
    graph.nodes.push_back(node);
    if (i > 0)
      graph.values.push_back({static_cast<size_t>(i) - 1,
                              activationBytes,
                              activationBytes,
                              {static_cast<size_t>(i)}});
  }
  return graph;
}

Topology oneServer(int devices, double bandwidth, double latency) {
  Topology t;
  t.device = deviceModel("h100-sxm");
  t.levels = {{"gpu", devices, bandwidth, latency}};
  return t;
}

TwoStages::TwoStages(CostGraph chain, const char *strategy, int microbatches) {
  request.graph = std::move(chain);
  request.topology = oneServer(2, 1e9, 20e-6);
  request.strategy = strategyFacts(strategy);
  request.microbatches = microbatches;
  split.starts = {0, 4}, split.replicas = {1, 1};
}

PlanResult TwoStages::price() const {
  const IntervalCosts costs(request.graph);
  return StepModel(request, costs).price(split);
}

} // namespace pipec::plan::test
