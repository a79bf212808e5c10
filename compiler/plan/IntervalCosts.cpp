#include "compiler/plan/IntervalCosts.h"

#include <algorithm>

namespace pipec::plan {

IntervalCosts::IntervalCosts(const CostGraph &graph)
    : forwardTask(graph.forwardTaskSeconds),
      backwardTask(graph.backwardTaskSeconds) {
  size_t n = graph.nodes.size();
  own.reserve(n);
  for (const CostNode &node : graph.nodes) {
    CostNode part = node;
    part.id.clear();
    part.name.clear();
    own.push_back(std::move(part));
  }

  std::vector<std::vector<Touch>> at(n);
  auto touchAll = [&](Tensor tensor, std::vector<size_t> users, int64_t bytes,
                      int64_t gradientBytes, size_t before) {
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
    for (size_t user : users) {
      at[user].push_back({tensor, before, bytes, gradientBytes});
      before = user + 1;
    }
  };
  for (const CostWeight &weight : graph.weights)
    touchAll(weight.trainable ? Tensor::Parameter : Tensor::State, weight.users,
             weight.bytes, 0, 0);
  for (const CostStash &stash : graph.stashes)
    touchAll(Tensor::Stash, stash.users, stash.bytes, 0, 0);
  // The producer is the value's first touch: an interval that holds it receives
  // nothing.
  for (const CostValue &value : graph.values)
    touchAll(Tensor::Value, value.consumers, value.bytes, value.gradientBytes,
             value.producer + 1);

  offsets.assign(1, 0);
  for (const auto &list : at) {
    touches.insert(touches.end(), list.begin(), list.end());
    offsets.push_back(touches.size());
  }
}

const StageCost &IntervalCosts::Sweep::grow() {
  const CostNode &node = costs.own[next];
  sum.forwardSeconds += node.forwardSeconds;
  sum.backwardInputSeconds += node.backwardInputSeconds;
  sum.backwardWeightSeconds += node.backwardWeightSeconds;
  sum.parameterBytes += node.parameterBytes;
  sum.stateBytes += node.stateBytes;
  sum.stashBytes += node.stashBytes;
  sum.workspaceBytes = std::max(sum.workspaceBytes, node.workspaceBytes);
  for (size_t t = costs.offsets[next]; t < costs.offsets[next + 1]; ++t) {
    const Touch &touch = costs.touches[t];
    if (touch.previous > first)
      continue;
    switch (touch.tensor) {
    case Tensor::Parameter:
      sum.parameterBytes += touch.bytes;
      break;
    case Tensor::State:
      sum.stateBytes += touch.bytes;
      break;
    case Tensor::Stash:
      sum.stashBytes += touch.bytes;
      break;
    case Tensor::Value:
      sum.receiveBytes += touch.bytes;
      sum.receiveGradientBytes += touch.gradientBytes;
      break;
    }
  }
  ++next;
  return sum;
}

const StageCost &IntervalCosts::Sweep::growTo(size_t last) {
  while (next <= last)
    grow();
  return sum;
}

} // namespace pipec::plan
