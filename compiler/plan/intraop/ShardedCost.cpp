#include "compiler/plan/intraop/ShardedCost.h"

#include <algorithm>
#include <set>

namespace pipec::plan {

namespace {

/// Walks the tensors of a stage one by one.
class Walk {
public:
  Walk(const CostGraph &graph, size_t first, size_t last,
       const StageSharding &sharding, const ShardingGroup &group)
      : graph(graph), sharded(*graph.sharding), first(first), last(last),
        sharding(sharding), group(group) {}

  OpSeconds seconds() const {
    OpSeconds sum;
    for (size_t node = first; node <= last; ++node) {
      const OpSeconds own = ownSeconds(graph, node, choice(node), group);
      sum.forward += own.forward;
      sum.backwardInput += own.backwardInput;
      sum.backwardWeight += own.backwardWeight;
    }
    for (size_t v = 0; v < sharded.values.size(); ++v) {
      const ShardedValue &value = sharded.values[v];
      const auto [reads, leaves] =
          uses(value.readers, {false, v}, isInside(value.producer));
      for (Layout layout : reads)
        sum.forward += reshardSeconds(group, value.bytes, made(v), layout);
      for (Layout layout : leaves)
        sum.backwardInput +=
            reshardSeconds(group, value.gradientBytes, layout, made(v));
    }
    for (size_t w = 0; w < sharded.weights.size(); ++w) {
      const auto [reads, leaves] =
          uses(sharded.weights[w].readers, {true, w}, false);
      const CostWeight &weight = graph.weights[w];
      for (Layout layout : reads)
        sum.forward +=
            reshardSeconds(group, weight.bytes, sharding.weights[w], layout);
      for (Layout layout : leaves)
        if (weight.trainable)
          sum.backwardWeight +=
              reshardSeconds(group, weight.bytes, layout, sharding.weights[w]) /
              group.microbatches;
    }
    return sum;
  }

  bool isInside(size_t node) const { return first <= node && node <= last; }
  const OpSharding &choice(size_t node) const {
    return sharding.nodes[node - first];
  }
  /// Whether what the node makes is read in the slices in which it is made.
  bool keepsSlices(size_t node) const {
    for (size_t v : sharded.ops[node].results) {
      const std::set<Layout> reads =
          uses(sharded.values[v].readers, {false, v}, true).first;
      if (made(v) == kWhole ||
          std::any_of(reads.begin(), reads.end(),
                      [&](Layout layout) { return layout != made(v); }))
        return false;
    }
    return !sharded.ops[node].results.empty();
  }
  bool isRead(size_t weight) const {
    const std::vector<size_t> &readers = sharded.weights[weight].readers;
    return std::any_of(readers.begin(), readers.end(),
                       [&](size_t node) { return isInside(node); });
  }

  /// How the stage has a value; from other stages it comes whole.
  Layout made(size_t value) const {
    const size_t node = sharded.values[value].producer;
    if (!isInside(node))
      return kWhole;
    const ShardedOp &op = sharded.ops[node];
    const auto at = std::find(op.results.begin(), op.results.end(), value);
    return makesAs(op, choice(node),
                   static_cast<size_t>(at - op.results.begin()));
  }

private:
  /// The layouts in which the stage's readers want a tensor and leave its
  /// gradient. What is made here (`leavesStage`) and read elsewhere is sent
  /// whole.
  std::pair<std::set<Layout>, std::set<Layout>>
  uses(const std::vector<size_t> &readers, ShardedOperand tensor,
       bool leavesStage) const {
    std::set<Layout> reads, leaves;
    for (size_t node : readers) {
      if (leavesStage && !isInside(node))
        reads.insert(kWhole);
      if (!isInside(node))
        continue;
      const ShardedOp &op = sharded.ops[node];
      for (size_t k = 0; k < op.operands.size(); ++k)
        if (op.operands[k].isWeight == tensor.isWeight &&
            op.operands[k].tensor == tensor.tensor) {
          reads.insert(readsAs(op, choice(node), k));
          leaves.insert(gradientAs(op, choice(node), k));
        }
    }
    return {reads, leaves};
  }

  const CostGraph &graph;
  const ShardingGraph &sharded;
  size_t first, last;
  const StageSharding &sharding;
  const ShardingGroup &group;
};

} // namespace

StageCost shardedCost(const CostGraph &graph, const StageCost &whole,
                      size_t first, size_t last, const StageSharding &sharding,
                      const ShardingGroup &group) {
  const Walk walk(graph, first, last, sharding, group);
  StageCost cost = whole;
  const OpSeconds seconds = walk.seconds();
  cost.forwardSeconds = graph.forwardTaskSeconds + seconds.forward;
  cost.backwardInputSeconds = graph.backwardTaskSeconds + seconds.backwardInput;
  cost.backwardWeightSeconds = seconds.backwardWeight;
  const auto saved = [&](int64_t bytes) {
    return bytes - (bytes + group.devices - 1) / group.devices;
  };
  for (size_t w = 0; w < graph.weights.size(); ++w)
    if (sharding.weights[w] != kWhole && walk.isRead(w))
      (graph.weights[w].trainable ? cost.parameterBytes : cost.stateBytes) -=
          saved(graph.weights[w].bytes);
  for (const CostStash &stash : graph.stashes) {
    const bool isKept = walk.isInside(stash.producer) &&
                        std::any_of(stash.users.begin(), stash.users.end(),
                                    [&](size_t u) { return walk.isInside(u); });
    if (isKept && walk.keepsSlices(stash.producer))
      cost.stashBytes -= saved(stash.bytes);
  }
  return cost;
}

double intraOpSeconds(const CostGraph &graph, size_t first, size_t last,
                      const StageSharding &sharding,
                      const ShardingGroup &group) {
  const Walk walk(graph, first, last, sharding, group);
  double sum = walk.seconds().total();
  const auto local = [&](int64_t bytes, Layout layout) {
    return static_cast<double>(bytes) / (layout == kWhole ? 1 : group.devices);
  };
  for (size_t w = 0; w < graph.weights.size(); ++w) {
    if (!walk.isRead(w))
      continue;
    const CostWeight &weight = graph.weights[w];
    const double bytes = local(weight.bytes, sharding.weights[w]);
    if (weight.trainable)
      sum += bytes * (group.updateSecondsPerByte / group.microbatches +
                      group.secondsPerByte * group.copies);
    else
      sum += bytes * group.secondsPerByte;
  }
  for (size_t v = 0; v < graph.sharding->values.size(); ++v)
    if (walk.isInside(graph.sharding->values[v].producer))
      sum += group.secondsPerByte *
             local(graph.sharding->values[v].bytes, walk.made(v));
  return sum;
}

} // namespace pipec::plan
