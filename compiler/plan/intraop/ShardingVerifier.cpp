#include "compiler/plan/intraop/ShardingVerifier.h"

#include "compiler/plan/Expect.h"

#include <map>
#include <set>

namespace pipec::plan {

namespace {

/// A value or weight as the stage goes on: how it lies, and as what it has been
/// handed out and its gradient taken back.
struct Place {
  Layout layout = kWhole;
  std::set<Layout> out, back;
};

/// Goes through a stage as its devices would.
class Recomputation {
public:
  Recomputation(const PlanRequest &request, const StagePlan &stage)
      : request(request), stage(stage), graph(request.graph),
        shards(*request.graph.sharding),
        n(static_cast<double>(stage.sharding.degree)) {
    slowest = request.topology.link(0, 1);
    for (int d = 2; d < stage.sharding.degree; ++d)
      if (Link link = request.topology.link(0, d);
          link.bandwidth < slowest.bandwidth)
        slowest = link;
  }

  ShardedTotals run() {
    for (size_t node = stage.firstNode; node <= stage.lastNode; ++node) {
      check(node);
      read(node);
      work(node);
      make(node);
    }
    for (auto &[v, place] : values)
      if (isSent(v) && place.layout != kWhole && !place.out.count(kWhole))
        totals.forward += hops(shards.values[v].bytes, 1);
    saveBytes();
    return totals;
  }

private:
  const OpSharding &choice(size_t node) const {
    return stage.sharding.nodes.at(node - stage.firstNode);
  }
  const ShardingFactor *factor(size_t node) const {
    const int f = choice(node).factor;
    return f < 0 ? nullptr
                 : &shards.ops[node].factors.at(static_cast<size_t>(f));
  }
  bool isInside(size_t node) const {
    return stage.firstNode <= node && node <= stage.lastNode;
  }
  bool isSent(size_t value) const {
    if (!isInside(shards.values[value].producer))
      return false;
    for (size_t reader : shards.values[value].readers)
      if (reader > stage.lastNode)
        return true;
    return false;
  }

  /// So many times n - 1 steps of a ring, each with an n-th of the bytes.
  double hops(int64_t bytes, double rounds) const {
    const double slice = static_cast<double>(bytes) / n;
    return rounds * (n - 1) * (slowest.latency + slice / slowest.bandwidth);
  }
  double between(int64_t bytes, Layout from, Layout to) const {
    if (bytes == 0 || from == to || from == kWhole)
      return 0;
    if (from == kPartial)
      return hops(bytes, to == kWhole ? 2 : 1); // scattered; and gathered
    return to == kWhole ? hops(bytes, 1)
                        : hops(bytes / stage.sharding.degree, 1);
  }

  void check(size_t node) const {
    const ShardingFactor *f = factor(node);
    expect(choice(node).scatter == kWhole || (f && f->sums),
           "a node scatters what is no sum");
    expect(!f || f->size % stage.sharding.degree == 0,
           "a group does not divide a factor of node " + graph.nodes[node].id);
    if (choice(node).scatter == kWhole)
      return;
    const std::vector<int64_t> &sizes =
        shards.values[shards.ops[node].results.at(0)].sizes;
    expect(sizes.at(static_cast<size_t>(choice(node).scatter)) %
                   stage.sharding.degree ==
               0,
           "a group does not divide what node " + graph.nodes[node].id +
               " scatters");
  }

  void read(size_t node) {
    const ShardedOp &op = shards.ops[node];
    const ShardingFactor *f = factor(node);
    for (size_t k = 0; k < op.operands.size(); ++k) {
      const auto [isWeight, tensor] = op.operands[k];
      const Layout wants = f ? f->operands.at(k) : kWhole;
      const Layout leaves = f && wants == kWhole ? kPartial : wants;
      Place &place = (isWeight ? weights : values)[tensor];
      if (isWeight)
        place.layout = stage.sharding.weights.at(tensor);
      const int64_t bytes =
          isWeight ? graph.weights[tensor].bytes : shards.values[tensor].bytes;
      if (place.out.insert(wants).second)
        totals.forward += between(bytes, place.layout, wants);
      if (!place.back.insert(leaves).second)
        continue;
      if (!isWeight)
        totals.backwardInput +=
            between(shards.values[tensor].gradientBytes, leaves, place.layout);
      else if (graph.weights[tensor].trainable)
        totals.weight += between(bytes, leaves, place.layout) /
                         ((request.microbatches - 1) / stage.replicas + 1);
    }
  }

  double share(double seconds, bool isDivided) const {
    const double fixed = request.topology.device.launchSeconds;
    return !isDivided || seconds < fixed ? seconds
                                         : fixed + (seconds - fixed) / n;
  }

  void work(size_t node) {
    const ShardingFactor *f = factor(node);
    const CostNode &own = graph.nodes[node];
    totals.forward += share(own.forwardSeconds, f);
    totals.backwardInput += share(own.backwardInputSeconds, f);
    totals.weight += share(own.backwardWeightSeconds, f);
    if (!f || !f->sums)
      return;
    for (size_t result : shards.ops[node].results) {
      const ShardedValue &value = shards.values[result];
      const bool isScattered = choice(node).scatter != kWhole;
      totals.forward += hops(value.bytes, isScattered ? 1 : 2);
      if (isScattered && value.gradientBytes)
        totals.backwardInput += hops(value.gradientBytes, 1);
    }
  }

  void make(size_t node) {
    const ShardingFactor *f = factor(node);
    for (size_t r = 0; r < shards.ops[node].results.size(); ++r)
      values[shards.ops[node].results[r]].layout = !f ? kWhole
                                                   : f->sums
                                                       ? choice(node).scatter
                                                       : f->results.at(r);
  }

  int64_t saved(int64_t bytes) const {
    const int64_t d = stage.sharding.degree;
    return bytes - (bytes / d + (bytes % d != 0));
  }

  void saveBytes() {
    for (auto &[w, place] : weights) {
      if (place.layout == kWhole)
        continue;
      expect(shards.weights[w].sizes.at(static_cast<size_t>(place.layout)) %
                     stage.sharding.degree ==
                 0,
             "slices of a weight are unequal");
      (graph.weights[w].trainable ? totals.savedParameters
                                  : totals.savedState) +=
          saved(graph.weights[w].bytes);
    }
    for (const CostStash &stash : graph.stashes) {
      bool isKept = false;
      for (size_t user : stash.users)
        isKept = isKept || isInside(user);
      if (!isKept || !isInside(stash.producer))
        continue;
      bool inSlices = !shards.ops[stash.producer].results.empty();
      for (size_t v : shards.ops[stash.producer].results) {
        const Place &place = values[v];
        inSlices = inSlices && place.layout != kWhole && !isSent(v);
        for (Layout layout : place.out)
          inSlices = inSlices && layout == place.layout;
      }
      if (inSlices)
        totals.savedStash += saved(stash.bytes);
    }
  }

  const PlanRequest &request;
  const StagePlan &stage;
  const CostGraph &graph;
  const ShardingGraph &shards;
  const double n;
  Link slowest;
  std::map<size_t, Place> values, weights;
  ShardedTotals totals;
};

} // namespace

ShardedTotals recomputeSharding(const PlanRequest &request,
                                const StagePlan &stage) {
  expect(request.graph.sharding != nullptr, "nothing says how to shard");
  expect(stage.sharding.nodes.size() == stage.lastNode - stage.firstNode + 1,
         "a stage's sharding is another stage's");
  return Recomputation(request, stage).run();
}

} // namespace pipec::plan
