//===- Memory.cpp - the bytes a rank allocates ----------------------------===//
#include "runtime/program/Memory.h"
#include "runtime/program/Buckets.h"

#include <algorithm>
#include <map>

namespace pipec::plan {

int64_t alignUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t pieceBytes(const Plan &plan) {
  return plan.cluster.kind == "cuda" ? kMostSlice : kPieceBytes;
}

Region regionOf(const Stage &stage, const std::string &name) {
  auto found = stage.regions.find(name);
  return found == stage.regions.end() ? Region{} : found->second;
}

int weightsStage(const Plan &plan, int stage) {
  return stage % (static_cast<int>(plan.stages.size()) / plan.strategy.slices);
}

int64_t sliceBytes(int64_t bytes, int replicas) {
  return alignUp((bytes + replicas - 1) / replicas);
}

std::vector<Tie> ties(const Plan &plan) {
  std::map<int, Tie> byWeight;
  for (const Stage &stage : plan.stages)
    for (const StageWeight &weight : stage.weights) {
      if (weight.gradients.empty())
        continue;
      Tie &tie = byWeight[weight.weight];
      tie.weight = weight.weight;
      int64_t elements = 1;
      for (int64_t dim : plan.weights[weight.weight].shape)
        elements *= dim;
      tie.bytes = elements * 4;
      for (auto [use, offset] : weight.gradients)
        tie.uses.push_back({use, stage.id, offset});
      tie.copies.push_back({stage.id, weight.gradients[0].second});
    }
  std::vector<Tie> result;
  for (auto &[index, tie] : byWeight)
    if (tie.uses.size() > 1) {
      std::sort(tie.uses.begin(), tie.uses.end(),
                [](auto &a, auto &b) { return a.index < b.index; });
      result.push_back(std::move(tie));
    }
  return result;
}

std::vector<int> tieLeads(const Plan &plan, const Tie &tie) {
  std::vector<int> leads;
  for (auto &[stage, offset] : tie.copies) {
    const int rank = plan.stages[stage].ranks[0];
    if (std::find(leads.begin(), leads.end(), rank) == leads.end())
      leads.push_back(rank);
  }
  return leads;
}

int64_t scratchBytes(const Plan &plan, int rank) {
  int64_t scratch = 0;
  for (int id : plan.ranks[rank].stages) {
    const Stage &stage = plan.stages[id];
    const int replicas = static_cast<int>(stage.ranks.size());
    if (replicas < 2)
      continue;
    int64_t slice = sliceBytes(regionOf(stage, "gradients").bytes, replicas);
    scratch =
        std::max(scratch, (replicas - 1) * std::min(slice, pieceBytes(plan)));
    if (stage.tracks && plan.ranks[rank].program.kind == "stream")
      scratch = std::max(scratch, (replicas - 1) *
                                      alignUp(regionOf(stage, "stats").bytes));
  }
  for (const Tie &tie : ties(plan)) {
    const std::vector<int> leads = tieLeads(plan, tie);
    if (std::find(leads.begin(), leads.end(), rank) == leads.end())
      continue;
    const int64_t elsewhere =
        std::count_if(tie.uses.begin(), tie.uses.end(), [&](auto &use) {
          return plan.stages[use.stage].ranks[0] != rank;
        });
    const int64_t slice = sliceBytes(tie.bytes, static_cast<int>(leads.size()));
    scratch = std::max(scratch, elsewhere * std::min(slice, pieceBytes(plan)));
  }
  return alignUp(scratch);
}

int64_t undoBytes(const Plan &plan, int rank) {
  const bool last = rank + 1 == static_cast<int>(plan.ranks.size());
  if (!plan.strategy.post_validation || plan.training.clip_norm <= 0 || last)
    return 0;
  int64_t bytes = 0;
  for (int id : plan.ranks[rank].stages)
    for (const char *region : {"weights", "optimizer"})
      bytes += alignUp(regionOf(plan.stages[id], region).bytes);
  return bytes;
}

RankMemory rankMemory(const Plan &plan, int rank) {
  RankMemory memory;
  for (int id : plan.ranks[rank].stages) {
    const Stage &stage = plan.stages[id];
    auto bytes = [&](const char *name) {
      Region region = regionOf(stage, name);
      return alignUp(region.bytes) * region.slots;
    };
    memory.workspace = std::max(memory.workspace, bytes("workspace"));
    memory.weights += bytes("weights") * stage.versions;
    memory.gradients += bytes("gradients");
    memory.optimizer += bytes("optimizer");
    memory.stash += bytes("stash") + bytes("wstash");
    memory.other += bytes("constants") + bytes("state") + bytes("stats") +
                    bytes("in") + bytes("out") + bytes("grad_in") +
                    bytes("grad_out") + bytes("outputs") +
                    (stage.computes_loss ? kAlignment : 0);
  }
  memory.other += scratchBytes(plan, rank) + undoBytes(plan, rank);
  return memory;
}

int64_t rankBytes(const Plan &plan, int rank) {
  return rankMemory(plan, rank).total();
}

} // namespace pipec::plan
