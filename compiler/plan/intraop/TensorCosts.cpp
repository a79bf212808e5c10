#include "compiler/plan/intraop/TensorCosts.h"

#include <algorithm>

namespace pipec::plan {

TensorCosts::TensorCosts(const CostGraph &graph, const ShardingGroup &group,
                         ShardedOperand tensor,
                         const std::vector<std::vector<OpSharding>> &choices)
    : isSent(!tensor.isWeight) {
  const ShardingGraph &sharding = *graph.sharding;
  const auto &[sizes, readers] =
      tensor.isWeight ? std::tie(sharding.weights[tensor.tensor].sizes,
                                 sharding.weights[tensor.tensor].readers)
                      : std::tie(sharding.values[tensor.tensor].sizes,
                                 sharding.values[tensor.tensor].readers);
  int64_t bytes = 0, gradientBytes = 0;
  double times = 1;
  if (tensor.isWeight) {
    const CostWeight &weight = graph.weights[tensor.tensor];
    bytes = weight.bytes, gradientBytes = weight.trainable ? bytes : 0;
    times = 1 / group.microbatches;
  } else {
    const ShardedValue &value = sharding.values[tensor.tensor];
    bytes = value.bytes, gradientBytes = value.gradientBytes;
  }
  kinds = static_cast<int>(sizes.size()) - kPartial;
  for (Layout from = kPartial; from < kinds + kPartial; ++from)
    for (Layout to = kPartial; to < kinds + kPartial; ++to) {
      reads.push_back(reshardSeconds(group, bytes, from, to));
      gradients.push_back(times *
                          reshardSeconds(group, gradientBytes, from, to));
      if (tensor.isWeight)
        gradients.back() += group.secondsPerByte * group.gradientCopies *
                            static_cast<double>(addedGradientBytes(
                                gradientBytes, from, to, group.devices));
    }
  for (size_t node : readers) {
    const ShardedOp &op = sharding.ops[node];
    for (size_t k = 0; k < op.operands.size(); ++k) {
      if (!isSame(op.operands[k], tensor))
        continue;
      Use use{node,
              tensor.isWeight && graph.nodes[node].backwardInputSeconds > 0,
              {}};
      for (const OpSharding &choice : choices[node]) {
        const std::pair way{readsAs(op, choice, k), gradientAs(op, choice, k)};
        if (std::find(use.ways.begin(), use.ways.end(), way) == use.ways.end())
          use.ways.push_back(way);
      }
      uses.push_back(std::move(use));
    }
  }
  wanted.resize(uses.size() + 1);
  for (size_t i = uses.size(); i-- > 0;) {
    wanted[i] = wanted[i + 1];
    for (const auto &[read, leaves] : uses[i].ways) {
      wanted[i].read |= layoutBit(read);
      wanted[i].again |= uses[i].again ? layoutBit(read) : 0;
      wanted[i].gradient |= layoutBit(leaves);
    }
  }
}

double TensorCosts::excess(const Held &a, const Held &b, size_t next) const {
  const auto first = static_cast<size_t>(
      std::partition_point(uses.begin(), uses.end(),
                           [&](const Use &use) { return use.node < next; }) -
      uses.begin());
  if (a == b || first == uses.size())
    return 0;
  const auto more = [](bool isPaid, double seconds, bool isPaidBy,
                       double secondsBy) {
    return (isPaid ? 0 : seconds) - (isPaidBy ? 0 : secondsBy);
  };
  const auto moreRead = [&](Layout to) {
    return more(a.read & layoutBit(to), read(a.layout, to),
                b.read & layoutBit(to), read(b.layout, to));
  };
  const auto moreAgain = [&](Layout to) {
    return more(a.again & layoutBit(to), read(a.layout, to),
                b.again & layoutBit(to), read(b.layout, to));
  };
  const auto moreGradient = [&](Layout from) {
    return more(a.gradient & layoutBit(from), gradient(from, a.layout),
                b.gradient & layoutBit(from), gradient(from, b.layout));
  };
  if (first + 1 == uses.size()) { // in one of its ways, or not in this stage
    double most = isSent ? std::max(0.0, moreRead(kWhole)) : 0;
    for (const auto &[to, from] : uses[first].ways)
      most = std::max(most, moreRead(to) + moreGradient(from) +
                                (uses[first].again ? moreAgain(to) : 0));
    return most;
  }
  // Each layout is paid for once, however many want it.
  const Held &all = wanted[first];
  double sum = 0;
  for (Layout layout = kPartial; layout < kinds + kPartial; ++layout) {
    const uint32_t bit = layoutBit(layout);
    if ((all.read & bit) || (isSent && layout == kWhole))
      sum += std::max(0.0, moreRead(layout));
    if (all.again & bit)
      sum += std::max(0.0, moreAgain(layout));
    if (all.gradient & bit)
      sum += std::max(0.0, moreGradient(layout));
  }
  return sum;
}

} // namespace pipec::plan
