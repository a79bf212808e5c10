//===- StageMemory.cpp - what the stages of a split take together ---------===//
//
// Part of StepModel: slots for messages depend on who sends to whom, and sums
// of gradients on who holds the same weights, so that both are known of all
// stages alone.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/ReduceOverlap.h"
#include "compiler/plan/StepModel.h"

#include <algorithm>
#include <map>

namespace pipec::plan {

static constexpr int64_t kLine = 64; // what is summed has whole ones

int64_t sliceOf(int64_t gradients, int holders) {
  const int64_t slice = (gradients + holders - 1) / holders;
  return (slice + kLine - 1) / kLine * kLine;
}

/// Who takes what the stages send from slots of their own.
schedule::Sends StepModel::sendsOf(const std::vector<StagePlan> &stages) const {
  schedule::Sends sends;
  if (!asked.strategy.spareSlots)
    return sends; // and nothing depends on it
  std::vector<int> stageOf(costs.nodes());
  for (size_t s = 0; s < stages.size(); ++s)
    std::fill(stageOf.begin() + static_cast<long>(stages[s].firstNode),
              stageOf.begin() + static_cast<long>(stages[s].lastNode) + 1,
              static_cast<int>(s));
  sends.values.resize(stages.size()), sends.gradients.resize(stages.size());
  std::vector<int> readers;
  for (const CostValue &value : asked.graph.values) {
    const int maker = stageOf[value.producer];
    const StagePlan &from = stages[static_cast<size_t>(maker)];
    if (std::ranges::all_of(value.consumers, [&](size_t consumer) {
          return consumer >= from.firstNode && consumer <= from.lastNode;
        }))
      continue; // as most values
    readers.assign(1, maker);
    for (const size_t consumer : value.consumers)
      readers.push_back(stageOf[consumer]);
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    const bool isKept = !from.recompute && value.keptFrom <= from.lastNode;
    for (size_t i = 1; i < readers.size(); ++i) {
      if (!isKept)
        sends.values[static_cast<size_t>(maker)].push_back(readers[i]);
      if (value.gradientBytes > 0) // each adds its own to the next one's
        sends.gradients[static_cast<size_t>(readers[i])].push_back(
            readers[i - 1]);
    }
  }
  for (auto *takers : {&sends.values, &sends.gradients})
    for (std::vector<int> &its : *takers) {
      std::sort(its.begin(), its.end());
      its.erase(std::unique(its.begin(), its.end()), its.end());
    }
  return sends;
}

void StepModel::addMemory(const Split &split,
                          std::vector<StagePlan> &stages) const {
  const schedule::Sends sends = sendsOf(stages);
  const auto &spareSlots = asked.strategy.spareSlots;
  std::map<int, int> spare; // by replicas: other stages have the same
  int fromHere = 0;
  for (size_t s = stages.size(); s-- > 0;) {
    StagePlan &stage = stages[s];
    fromHere += stage.replicas;
    StagePosition position{static_cast<int>(s), static_cast<int>(stages.size()),
                           stage.replicas, fromHere, asked.microbatches};
    if (spareSlots && !spare.contains(stage.replicas))
      spare[stage.replicas] = spareSlots(position, sends);
    Keeps keeps = keepsAt(asked, position, spare[stage.replicas]);
    stage.inFlight = keeps.inFlight;
    stage.versions = keeps.versions;
    stage.betweenHalves = keeps.betweenHalves;
    stage.memory = memory(costOf(split, s), keeps, stage.recompute);
  }
  addSumsOfCopies(stages);
}

/// Where copies of a weight are in several stages the first device of each has
/// a slice of the gradients of all uses of the weight that others have.
void StepModel::addSumsOfCopies(std::vector<StagePlan> &stages) const {
  const int64_t piece = reducedAtOnce(asked.topology.device);
  for (const CostWeight *weight : copied) {
    const std::vector<size_t> &uses =
        weight->uses.empty() ? weight->users : weight->uses;
    std::map<size_t, int> held; // uses, by stage
    std::map<int, int> leads;   // uses, by device
    for (const size_t node : uses) {
      const auto behind = std::upper_bound(
          stages.begin(), stages.end(), node,
          [](size_t n, const StagePlan &s) { return n < s.firstNode; });
      const auto stage = static_cast<size_t>(behind - stages.begin()) - 1;
      ++held[stage], ++leads[stages[stage].devices[0]];
    }
    if (leads.size() < 2)
      continue;
    const int64_t slice =
        std::min(piece, sliceOf(weight->bytes, static_cast<int>(leads.size())));
    for (const auto &[s, count] : held) {
      const int elsewhere =
          static_cast<int>(uses.size()) - leads.at(stages[s].devices[0]);
      stages[s].memory.sums =
          std::max(stages[s].memory.sums, elsewhere * slice);
    }
  }
}

} // namespace pipec::plan
