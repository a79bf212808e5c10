#include "compiler/plan/intraop/ShardingVerifier.h"

#include "compiler/plan/Expect.h"

#include <map>
#include <set>

namespace pipec::plan {

namespace {

/// A value or weight as the stage goes on: how it lies, and as what it has been
/// handed out, forward and, `again`, backward, and its gradient taken back.
struct Place {
  Layout layout = kWhole;
  std::set<Layout> out, again, back;
};

/// Goes through a stage as its devices would.
class Recomputation {
public:
  Recomputation(const PlanRequest &request, const StagePlan &stage)
      : request(request), stage(stage), graph(request.graph),
        shards(*request.graph.sharding),
        n(static_cast<double>(stage.sharding.degree)) {
    // Replicas do the same in the same time: that of the slowest group.
    for (int leader : stage.devices)
      for (int d = 0; d < stage.sharding.degree; ++d) {
        const Link link = request.topology.link(
            leader + d, leader + (d + 1) % stage.sharding.degree);
        if (slowest.bandwidth == 0 || link.bandwidth < slowest.bandwidth)
          slowest = link;
      }
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
    saveWeights();
    gather();
    saveStash();
    repeat();
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
      if (isWeight && graph.nodes[node].backwardInputSeconds > 0 &&
          place.again.insert(wants).second)
        totals.backwardInput += between(bytes, place.layout, wants);
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

  /// What of weights the device has at each node beside its slices: everything
  /// or others, from the first node that wants it so to the last.
  void gather() {
    std::vector<int64_t> has(stage.sharding.nodes.size(), 0);
    for (auto &[w, place] : weights) {
      std::map<Layout, std::set<size_t>> readers;
      for (size_t reader : shards.weights[w].readers)
        for (size_t k = 0; isInside(reader) && place.layout != kWhole &&
                           k < shards.ops[reader].operands.size();
             ++k) {
          const ShardedOperand &operand = shards.ops[reader].operands[k];
          if (operand.isWeight && operand.tensor == w)
            readers[factor(reader) ? factor(reader)->operands.at(k) : kWhole]
                .insert(reader - stage.firstNode);
        }
      const int64_t bytes = graph.weights[w].bytes;
      for (auto &[wants, nodes] : readers)
        for (size_t n = *nodes.begin(); n <= *nodes.rbegin(); ++n)
          if (wants != place.layout)
            has.at(n) += wants == kWhole ? bytes : slice(bytes);
    }
    for (int64_t bytes : has)
      totals.gathered = std::max(totals.gathered, bytes);
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

  int64_t slice(int64_t bytes) const {
    const int64_t d = stage.sharding.degree;
    return bytes / d + (bytes % d != 0);
  }

  void saveWeights() {
    for (auto &[w, place] : weights) {
      if (place.layout == kWhole)
        continue;
      expect(shards.weights[w].sizes.at(static_cast<size_t>(place.layout)) %
                     stage.sharding.degree ==
                 0,
             "slices of a weight are unequal");
      const CostWeight &weight = graph.weights[w];
      const int64_t own = slice(weight.bytes);
      (weight.trainable ? totals.savedParameters : totals.savedState) +=
          weight.bytes - own;
      for (const CostCopy &copy : graph.rounded)
        if (copy.weight == w &&
            std::any_of(copy.users.begin(), copy.users.end(), [&](size_t node) {
              return stage.firstNode <= node && node <= stage.lastNode;
            }))
          totals.savedRounded += copy.bytes - slice(copy.bytes);
      if (!weight.trainable)
        continue;
      // Sums in which a device adds up what it makes: its own slice, others,
      // and addends to all of it.
      int64_t sums = own;
      for (Layout back : place.back)
        if (back == kPartial)
          sums += weight.bytes - own;
        else if (back != kWhole && back != place.layout)
          sums += own;
      totals.addedGradients += sums - own;
    }
  }

  /// Whether devices keep slices of what the node makes.
  bool keepsSlices(size_t node) {
    bool inSlices = !shards.ops[node].results.empty();
    for (size_t v : shards.ops[node].results) {
      const Place &place = values[v];
      inSlices = inSlices && place.layout != kWhole && !isSent(v);
      for (Layout layout : place.out)
        inSlices = inSlices && layout == place.layout;
    }
    return inSlices;
  }

  void saveStash() {
    for (const CostStash &stash : graph.stashes) {
      bool isKept = false;
      for (size_t user : stash.users)
        isKept = isKept || isInside(user);
      if (isKept && isInside(stash.producer) && keepsSlices(stash.producer))
        totals.savedStash += stash.bytes - slice(stash.bytes);
    }
  }

  /// Activations that are computed again come one after the other; none goes
  /// before the last one is there.
  void repeat() {
    const std::vector<CostStash> &all =
        graph.repeats.empty() ? graph.stashes : graph.repeats;
    std::map<size_t, int64_t> comes;
    for (const CostStash &one : all) {
      std::set<size_t> users;
      for (size_t user : one.users)
        if (isInside(user))
          users.insert(user);
      if (users.empty() || one.producer < stage.firstNode)
        continue;
      const bool inSlices = isInside(one.producer) && keepsSlices(one.producer);
      comes[*users.begin()] += inSlices ? slice(one.bytes) : one.bytes;
    }
    std::map<size_t, int64_t> works;
    for (const CostScratch &scratch : graph.scratch)
      if (isInside(scratch.first) && isInside(scratch.last))
        works[scratch.last] = std::max(works[scratch.last], scratch.bytes);
    int64_t sum = 0;
    for (size_t node = stage.firstNode; node <= stage.lastNode; ++node) {
      sum += graph.nodes[node].stashBytes + comes[node];
      totals.again = std::max(
          totals.again,
          sum + std::max(works[node], graph.nodes[node].workspaceBytes));
    }
  }

  const PlanRequest &request;
  const StagePlan &stage;
  const CostGraph &graph;
  const ShardingGraph &shards;
  const double n;
  Link slowest; ///< of the rings in which the groups' devices lie
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
