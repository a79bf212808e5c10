#include "compiler/plan/intraop/ShardedCost.h"

#include <algorithm>
#include <map>
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
      const Uses use =
          uses(value.readers, {false, v}, isInside(value.producer));
      for (Layout layout : use.reads)
        sum.forward += reshardSeconds(group, value.bytes, made(v), layout);
      for (Layout layout : use.leaves)
        sum.backwardInput +=
            reshardSeconds(group, value.gradientBytes, layout, made(v));
    }
    for (size_t w = 0; w < sharded.weights.size(); ++w) {
      const Uses use = uses(sharded.weights[w].readers, {true, w}, false);
      const CostWeight &weight = graph.weights[w];
      for (Layout layout : use.reads)
        sum.forward +=
            reshardSeconds(group, weight.bytes, sharding.weights[w], layout);
      for (Layout layout : use.readsBackward)
        sum.backwardInput +=
            reshardSeconds(group, weight.bytes, sharding.weights[w], layout);
      for (Layout layout : use.leaves)
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
          uses(sharded.values[v].readers, {false, v}, true).reads;
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

  /// Gradients that are summed otherwise than in slices like their weights'.
  int64_t addedGradients() const {
    int64_t sum = 0;
    for (size_t w = 0; w < sharded.weights.size(); ++w)
      if (graph.weights[w].trainable)
        for (Layout leaves :
             uses(sharded.weights[w].readers, {true, w}, false).leaves)
          sum += addedGradientBytes(graph.weights[w].bytes, leaves,
                                    sharding.weights[w], group.devices);
    return sum;
  }

  /// The most bytes of weights that lie otherwise than in slices at one time:
  /// from the first to the last node that reads them so.
  int64_t gathered() const {
    std::vector<int64_t> more(last - first + 2, 0);
    for (size_t w = 0; w < sharded.weights.size(); ++w) {
      if (sharding.weights[w] == kWhole)
        continue;
      std::map<Layout, std::pair<size_t, size_t>> lives;
      for (size_t node : sharded.weights[w].readers)
        eachRead(node, {true, w}, [&](size_t k) {
          const Layout layout = readsAs(sharded.ops[node], choice(node), k);
          lives.try_emplace(layout, node, node).first->second.second = node;
        });
      lives.erase(sharding.weights[w]);
      for (const auto &[layout, life] : lives) {
        const int64_t bytes = graph.weights[w].bytes;
        const int64_t held =
            layout == kWhole ? bytes : sliceBytes(bytes, group.devices);
        more[life.first - first] += held;
        more[life.second + 1 - first] -= held;
      }
    }
    int64_t now = 0, most = 0;
    for (int64_t bytes : more)
      most = std::max(most, now += bytes);
    return most;
  }

  /// What a device works in that computes all activations again: at one of the
  /// nodes the most, with what it has of those up to there.
  int64_t again() const {
    std::vector<int64_t> has(last - first + 1), works(last - first + 1);
    for (size_t node = first; node <= last; ++node) {
      has[node - first] = graph.nodes[node].stashBytes;
      works[node - first] = graph.nodes[node].workspaceBytes;
    }
    for (const CostStash &kept :
         graph.repeats.empty() ? graph.stashes : graph.repeats) {
      size_t user = last + 1;
      for (size_t u : kept.users)
        if (isInside(u))
          user = std::min(user, u);
      if (user <= last && kept.producer >= first)
        has[user - first] += local(kept);
    }
    for (const CostScratch &scratch : graph.scratch)
      if (isInside(scratch.first) && isInside(scratch.last))
        works[scratch.last - first] =
            std::max(works[scratch.last - first], scratch.bytes);
    int64_t sum = 0, most = 0;
    for (size_t i = 0; i < has.size(); ++i)
      most = std::max(most, (sum += has[i]) + works[i]);
    return most;
  }

  /// What a device keeps of it: a slice where it is made and read in slices.
  int64_t local(const CostStash &kept) const {
    return isInside(kept.producer) && keepsSlices(kept.producer)
               ? sliceBytes(kept.bytes, group.devices)
               : kept.bytes;
  }

private:
  /// The layouts in which the stage's readers want a tensor, forward and for
  /// the gradients of what else they read, and leave its gradient.
  struct Uses {
    std::set<Layout> reads, readsBackward, leaves;
  };
  /// What is made here (`leavesStage`) and read elsewhere is sent whole.
  Uses uses(const std::vector<size_t> &readers, ShardedOperand tensor,
            bool leavesStage) const {
    Uses result;
    for (size_t node : readers) {
      if (leavesStage && !isInside(node))
        result.reads.insert(kWhole);
      eachRead(node, tensor, [&](size_t k) {
        const Layout layout = readsAs(sharded.ops[node], choice(node), k);
        result.reads.insert(layout);
        if (graph.nodes[node].backwardInputSeconds > 0)
          result.readsBackward.insert(layout);
        result.leaves.insert(gradientAs(sharded.ops[node], choice(node), k));
      });
    }
    return result;
  }
  /// Calls `visit` with the operands of a node of the stage that are `tensor`.
  template <typename Visit>
  void eachRead(size_t node, ShardedOperand tensor, Visit visit) const {
    if (!isInside(node))
      return;
    const std::vector<ShardedOperand> &operands = sharded.ops[node].operands;
    for (size_t k = 0; k < operands.size(); ++k)
      if (operands[k].isWeight == tensor.isWeight &&
          operands[k].tensor == tensor.tensor)
        visit(k);
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
    return bytes - sliceBytes(bytes, group.devices);
  };
  for (size_t w = 0; w < graph.weights.size(); ++w)
    if (sharding.weights[w] != kWhole && walk.isRead(w))
      (graph.weights[w].trainable ? cost.parameterBytes : cost.stateBytes) -=
          saved(graph.weights[w].bytes);
  for (const CostCopy &copy : graph.rounded)
    if (sharding.weights[copy.weight] != kWhole && walk.isRead(copy.weight) &&
        std::any_of(copy.users.begin(), copy.users.end(),
                    [&](size_t user) { return walk.isInside(user); }))
      cost.roundedBytes -= saved(copy.bytes);
  for (const CostStash &stash : graph.stashes)
    if (walk.isInside(stash.producer) &&
        std::any_of(stash.users.begin(), stash.users.end(),
                    [&](size_t u) { return walk.isInside(u); }))
      cost.stashBytes -= stash.bytes - walk.local(stash);
  cost.useBytes += walk.addedGradients();
  const int64_t gathered = walk.gathered();
  cost.workspaceBytes += gathered;
  cost.againBytes = walk.again() + gathered;
  return cost;
}

} // namespace pipec::plan
