#include "compiler/plan/intraop/OpChoices.h"

#include <algorithm>

namespace pipec::plan {

Layout readsAs(const ShardedOp &op, const OpSharding &choice, size_t operand) {
  return choice.factor < 0
             ? kWhole
             : op.factors[static_cast<size_t>(choice.factor)].operands[operand];
}

Layout gradientAs(const ShardedOp &op, const OpSharding &choice,
                  size_t operand) {
  if (choice.factor < 0)
    return kWhole;
  const Layout read = readsAs(op, choice, operand);
  return read == kWhole ? kPartial : read;
}

Layout makesAs(const ShardedOp &op, const OpSharding &choice, size_t result) {
  if (choice.factor < 0)
    return kWhole;
  const ShardingFactor &factor = op.factors[static_cast<size_t>(choice.factor)];
  return factor.sums ? choice.scatter : factor.results[result];
}

std::vector<OpSharding> choicesOf(const ShardingGraph &graph, size_t node,
                                  int devices) {
  const ShardedOp &op = graph.ops[node];
  std::vector<OpSharding> choices{{}};
  for (size_t f = 0; f < op.factors.size(); ++f) {
    if (op.factors[f].size % devices != 0)
      continue;
    choices.push_back({static_cast<int>(f), kWhole});
    if (!op.factors[f].sums || op.results.size() != 1)
      continue;
    const std::vector<int64_t> &sizes = graph.values[op.results[0]].sizes;
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d] % devices == 0)
        choices.push_back({static_cast<int>(f), static_cast<Layout>(d)});
  }
  return choices;
}

std::vector<Layout> layoutsOf(const ShardingGraph &graph, size_t weight,
                              int devices) {
  std::vector<Layout> layouts{kWhole};
  for (size_t reader : graph.weights[weight].readers) {
    const ShardedOp &op = graph.ops[reader];
    for (size_t k = 0; k < op.operands.size(); ++k) {
      if (!op.operands[k].isWeight || op.operands[k].tensor != weight)
        continue;
      for (const ShardingFactor &factor : op.factors)
        if (factor.operands[k] >= 0 && factor.size % devices == 0 &&
            std::find(layouts.begin(), layouts.end(), factor.operands[k]) ==
                layouts.end())
          layouts.push_back(factor.operands[k]);
    }
  }
  std::sort(layouts.begin(), layouts.end());
  return layouts;
}

OpSeconds ownSeconds(const CostGraph &graph, size_t node,
                     const OpSharding &choice, const ShardingGroup &group) {
  const CostNode &n = graph.nodes[node];
  if (choice.factor < 0)
    return {n.forwardSeconds, n.backwardInputSeconds, n.backwardWeightSeconds};
  const auto share = [&](double seconds) {
    const double fixed = std::min(seconds, group.fixedSeconds);
    return fixed + (seconds - fixed) / group.devices;
  };
  OpSeconds own{share(n.forwardSeconds), share(n.backwardInputSeconds),
                share(n.backwardWeightSeconds)};
  const ShardedOp &op = graph.sharding->ops[node];
  if (!op.factors[static_cast<size_t>(choice.factor)].sums)
    return own;
  for (size_t result : op.results) {
    const ShardedValue &value = graph.sharding->values[result];
    own.forward += reshardSeconds(group, value.bytes, kPartial, choice.scatter);
    own.backwardInput +=
        reshardSeconds(group, value.gradientBytes, choice.scatter, kWhole);
  }
  return own;
}

} // namespace pipec::plan
