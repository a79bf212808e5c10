#include "ShardableGraphs.h"

#include <algorithm>
#include <memory>

namespace pipec::plan::test {

CostGraph randomShardable(Random &random, int nodes) {
  CostGraph graph = randomGraph(random, nodes);
  graph.values.clear(), graph.weights.clear(), graph.rounded.clear();
  graph.stashes.clear();
  auto sharding = std::make_shared<ShardingGraph>();
  const auto read = [&](ShardedOp &op, bool isWeight, size_t tensor,
                        size_t node) {
    op.operands.push_back({isWeight, tensor});
    std::vector<size_t> &readers = isWeight ? sharding->weights[tensor].readers
                                            : sharding->values[tensor].readers;
    if (readers.empty() || readers.back() != node)
      readers.push_back(node);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    ShardedOp op;
    const auto earlier = [&] {
      return static_cast<size_t>(random.between(
          std::max(0, static_cast<int>(n) - 3), static_cast<int>(n) - 1));
    };
    if (n == 0 || random.between(0, 2) == 0) { // x (or data) times a weight
      if (n > 0)
        read(op, false, earlier(), n);
      const bool isNew = graph.weights.empty() || random.between(0, 3) > 0;
      if (isNew) {
        graph.weights.push_back({"w" + std::to_string(n),
                                 random.between(1, 200) * 1000,
                                 {},
                                 random.between(0, 3) > 0});
        sharding->weights.push_back({{8, 8}, {}});
      }
      read(op, true, graph.weights.size() - 1, n);
      const bool hasValue = op.operands.size() == 2;
      const auto dims = [&](int x, int w) {
        return hasValue ? std::vector<int>{x, w} : std::vector<int>{w};
      };
      op.factors = {{"rows", 8, dims(0, kWhole), {0}, false},
                    {"columns", 8, dims(kWhole, 1), {1}, false}};
      if (hasValue)
        op.factors.push_back({"sum", 8, dims(1, 0), {kWhole}, true});
    } else if (random.between(0, 1)) { // two values of the same place
      read(op, false, earlier(), n);
      read(op, false, earlier(), n);
      op.factors = {{"rows", 8, {0, 0}, {0}, false},
                    {"columns", 8, {1, 1}, {1}, false}};
    } else { // a softmax of rows, or what can only be done whole
      read(op, false, earlier(), n);
      if (random.between(0, 2))
        op.factors = {{"rows", 8, {0}, {0}, false}};
    }
    if (random.between(0, 3) == 0) // nothing before it wants a gradient
      graph.nodes[n].backwardInputSeconds = 0;
    const int64_t bytes = random.between(1, 200) * 1000;
    op.results.push_back(sharding->values.size());
    sharding->values.push_back(
        {n, {8, 8}, bytes, random.between(0, 4) ? bytes : 0, {}});
    sharding->ops.push_back(op);
  }
  for (size_t v = 0; v < sharding->values.size(); ++v) {
    const ShardedValue &value = sharding->values[v];
    if (!value.readers.empty())
      graph.values.push_back(
          {value.producer, value.bytes, value.gradientBytes, value.readers});
    graph.stashes.push_back({value.bytes, {value.producer}, value.producer});
  }
  for (size_t w = 0; w < graph.weights.size(); ++w)
    graph.weights[w].users = sharding->weights[w].readers;
  for (size_t w = 0; w < graph.weights.size(); w += 2)
    if (const CostWeight &weight = graph.weights[w];
        weight.trainable && !weight.users.empty())
      graph.rounded.push_back({weight.bytes / 2, {weight.users[0]}, w});
  graph.sharding = sharding;
  return graph;
}

PlanRequest requestOf(CostGraph graph, int devices, Random &random) {
  PlanRequest request;
  request.graph = std::move(graph);
  request.topology = oneServer(devices, random.real(1e8, 1e10), 2e-6);
  request.topology.device.launchSeconds = random.between(0, 1) * 2e-4;
  request.topology.device.memoryBandwidth = 1e12;
  request.strategy = strategyFacts("1f1b");
  request.microbatches = random.between(1, 8);
  return request;
}

PlanRequest twoProducts() {
  CostGraph graph;
  auto sharding = std::make_shared<ShardingGraph>();
  const int64_t bytes = 1 << 20, weight = 16 << 20;
  for (size_t n = 0; n < 2; ++n) {
    CostNode node;
    node.id = node.name = "product" + std::to_string(n);
    node.forwardSeconds = node.backwardInputSeconds = 1e-3;
    graph.nodes.push_back(node);
    graph.weights.push_back({"w" + std::to_string(n), weight, {n}, true});
    sharding->weights.push_back({{2048, 2048}, {n}});
    sharding->values.push_back({n, {64, 2048}, bytes, bytes, {}});
    std::vector<ShardedOperand> operands{{true, n}};
    if (n > 0)
      operands.insert(operands.begin(), {false, n - 1});
    const auto dims = [&](int x, int w) {
      return n > 0 ? std::vector<int>{x, w} : std::vector<int>{w};
    };
    sharding->ops.push_back({{{"rows", 64, dims(0, kWhole), {0}, false},
                              {"columns", 2048, dims(kWhole, 1), {1}, false}},
                             operands,
                             {n}});
    graph.stashes.push_back({bytes, {n}, n});
  }
  sharding->values[0].readers = {1};
  graph.values.push_back({0, bytes, bytes, {1}});
  graph.sharding = sharding;
  PlanRequest request;
  request.graph = graph;
  request.topology = oneServer(4, 100e9, 1e-6);
  request.topology.levels.insert(request.topology.levels.begin(),
                                 {"server", 2, 1e9, 5e-5});
  request.topology.device.memoryBandwidth = 1e12;
  request.topology.device.launchSeconds = 0;
  request.strategy = strategyFacts("1f1b");
  request.microbatches = 4;
  request.memoryLimit = -1;
  return request;
}

} // namespace pipec::plan::test
