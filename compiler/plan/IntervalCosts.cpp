#include "compiler/plan/IntervalCosts.h"

#include <algorithm>
#include <limits>

namespace pipec::plan {

/// The previous touch of what begins here: in every interval.
static constexpr size_t kBefore = std::numeric_limits<size_t>::max();

IntervalCosts::IntervalCosts(const CostGraph &graph)
    : forwardTask(graph.forwardTaskSeconds),
      backwardTask(graph.backwardTaskSeconds),
      knowsAgain(!graph.repeats.empty()) {
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
                      int64_t gradientBytes, size_t before,
                      size_t from = CostValue::kNone) {
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
    for (size_t user : users) {
      at[user].push_back({tensor, before, bytes, gradientBytes, from});
      before = user + 1;
    }
  };
  for (const CostWeight &weight : graph.weights)
    touchAll(weight.trainable ? Tensor::Parameter : Tensor::State, weight.users,
             weight.bytes, 0, 0);
  for (const CostCopy &copy : graph.rounded)
    touchAll(Tensor::Rounded, copy.users, copy.bytes, 0, 0);
  for (const CostStash &stash : graph.stashes)
    touchAll(Tensor::Stash, stash.users, stash.bytes, 0, 0, stash.producer);
  for (const CostStash &again : graph.repeats)
    touchAll(Tensor::Again, again.users, again.bytes, 0, 0, again.producer);
  for (const CostStash &input : graph.inputs)
    touchAll(Tensor::Input, input.users, input.bytes, 0, 0);
  // The producer is the value's first touch: an interval that holds it receives
  // nothing.
  for (const CostValue &value : graph.values)
    touchAll(Tensor::Value, value.consumers, value.bytes, value.gradientBytes,
             value.producer + 1);
  // From the producer on a value is sent, to where nobody behind reads it; and
  // from `out` to where it is kept. Its gradient comes to who touches it from
  // who reads it behind.
  for (const CostValue &value : graph.values) {
    if (value.consumers.empty())
      continue;
    std::vector<size_t> readers = value.consumers;
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    const size_t end = readers.back(), made = value.producer,
                 kept = std::min(value.keptFrom, end);
    at[made].push_back(
        {Tensor::Sent, kBefore, value.bytes, value.gradientBytes});
    at[kept].push_back({Tensor::Sent, made + 1, -value.bytes, 0});
    size_t before = made + 1;
    for (size_t reader : readers) {
      if (reader == end)
        at[end].push_back({Tensor::Sent, before, 0, -value.gradientBytes});
      else
        at[reader].push_back({Tensor::Relayed, before, 0, value.gradientBytes});
      before = reader + 1;
    }
  }
  for (const CostHandover &handover : graph.handovers)
    at[handover.last].push_back(
        {Tensor::Handover, handover.first + 1, handover.bytes, 0});
  for (const CostHandover &use : graph.furtherUses)
    at[use.last].push_back({Tensor::Use, use.first + 1, use.bytes, 0});
  // What counts in an interval from a node on, and then what does not.
  offsets.assign(1, 0);
  for (auto &list : at) {
    const auto inside =
        std::partition(list.begin(), list.end(), [](const Touch &touch) {
          return touch.tensor >= Tensor::Sent;
        });
    const auto later = [](const Touch &a, const Touch &b) {
      return a.previous > b.previous;
    };
    std::sort(list.begin(), inside, later);
    std::sort(inside, list.end(),
              [&](const Touch &a, const Touch &b) { return later(b, a); });
    insides.push_back(offsets.back() +
                      static_cast<size_t>(inside - list.begin()));
    touches.insert(touches.end(), list.begin(), list.end());
    offsets.push_back(touches.size());
  }
  addWorks(graph);
}

void IntervalCosts::addWorks(const CostGraph &graph) {
  std::vector<std::vector<Works>> at(nodes());
  for (const CostScratch &scratch : graph.scratch)
    at[scratch.last].push_back({scratch.first + 1, scratch.bytes});
  worksOffsets.assign(1, 0);
  for (std::vector<Works> &list : at) {
    std::sort(list.begin(), list.end(), [](const Works &a, const Works &b) {
      return std::pair(b.previous, b.bytes) < std::pair(a.previous, a.bytes);
    });
    int64_t most = 0;
    for (const Works &one : list)
      if (one.bytes > most) {
        works.push_back(one);
        most = one.bytes;
      }
    worksOffsets.push_back(works.size());
  }
}

/// The most of a node in an interval from `first` on.
int64_t IntervalCosts::worksAt(size_t node, size_t first) const {
  const auto begin = works.begin() + static_cast<long>(worksOffsets[node]),
             end = works.begin() + static_cast<long>(worksOffsets[node + 1]);
  const auto outside = std::partition_point(
      begin, end, [&](const Works &one) { return one.previous > first; });
  return outside == begin ? 0 : std::prev(outside)->bytes;
}

const StageCost &IntervalCosts::cost(size_t first, size_t last) const {
  const uint64_t key = static_cast<uint64_t>(first) * nodes() + last;
  if (const auto it = known.find(key); it != known.end())
    return it->second;
  return known.emplace(key, Sweep(*this, first).growTo(last)).first->second;
}

/// What counts once the touch before it lies in the interval.
void IntervalCosts::Sweep::addInside(const Touch &touch) {
  switch (touch.tensor) {
  case Tensor::Handover:
    sum.handoverBytes += touch.bytes;
    break;
  case Tensor::Use:
    sum.useBytes += touch.bytes;
    break;
  default:
    sum.sendBytes += touch.bytes;
    sum.sendGradientBytes += touch.gradientBytes;
  }
}

/// What counts where it is the interval's first touch.
void IntervalCosts::Sweep::addFirst(const Touch &touch) {
  switch (touch.tensor) {
  case Tensor::Parameter:
    sum.parameterBytes += touch.bytes;
    break;
  case Tensor::Rounded:
    sum.roundedBytes += touch.bytes;
    break;
  case Tensor::State:
    sum.stateBytes += touch.bytes;
    break;
  case Tensor::Stash:
    sum.stashBytes += touch.from >= first ? touch.bytes : 0;
    if (!costs.knowsAgain)
      repeated += touch.from >= first ? touch.bytes : 0;
    break;
  case Tensor::Again:
    repeated += touch.from >= first ? touch.bytes : 0;
    break;
  case Tensor::Input:
    sum.inputBytes += touch.bytes;
    break;
  case Tensor::Relayed:
    sum.sendGradientBytes += touch.gradientBytes;
    break;
  default:
    sum.receiveBytes += touch.bytes;
    sum.receiveGradientBytes += touch.gradientBytes;
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
  repeated += node.stashBytes;
  const int64_t works =
      std::max(node.workspaceBytes, costs.worksAt(next, first));
  const Touch *touch = costs.touches.data() + costs.offsets[next];
  const Touch *inside = costs.touches.data() + costs.insides[next];
  for (; touch != inside && touch->previous > first; ++touch)
    addInside(*touch);
  const Touch *end = costs.touches.data() + costs.offsets[next + 1];
  for (touch = inside; touch != end && touch->previous <= first; ++touch)
    addFirst(*touch);
  sum.workspaceBytes = std::max(sum.workspaceBytes, works);
  sum.againBytes = std::max(sum.againBytes, repeated + works);
  ++next;
  return sum;
}

const StageCost &IntervalCosts::Sweep::growTo(size_t last) {
  while (next <= last)
    grow();
  return sum;
}

} // namespace pipec::plan
