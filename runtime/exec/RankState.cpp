//===- RankState.cpp - the stages of a rank, loaded -----------------------===//
#include "runtime/exec/RankState.h"
#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"

#include <algorithm>

namespace pipec {

RankState::RankState(const plan::Plan &plan, const std::string &folder,
                     int rank, std::unique_ptr<Device> opened)
    : plan(plan), folder(folder), rank(rank), trains(!plan::forwardOnly(plan)),
      device(std::move(opened)), arena(*device, plan::rankBytes(plan, rank)),
      byStage(plan.stages.size()) {
  char *workspace = arena.take(plan::rankMemory(plan, rank).workspace);
  std::vector<int> stages = plan.ranks[rank].stages;
  std::sort(stages.begin(), stages.end());
  for (int id : stages) {
    const plan::Stage &stage = plan.stages[id];
    const auto replica = static_cast<int>(
        std::find(stage.ranks.begin(), stage.ranks.end(), rank) -
        stage.ranks.begin());
    StageLibrary library = StageLibrary::open(folder, stage, trains);
    PipecDevice *table = device->adopt(library.handle, library.path);
    const int holder = plan::weightsStage(plan, id);
    units.push_back(std::make_unique<StageUnit>(StageUnit{
        &stage, replica, std::move(library),
        StageMemory(stage, arena, workspace,
                    holder == id ? nullptr : &byStage[holder]->memory),
        table}));
    byStage[id] = units.back().get();
  }
  scratch = arena.take(plan::scratchBytes(plan, rank));
  undo = arena.take(plan::undoBytes(plan, rank));
}

std::string RankState::nameOf(const plan::Plan &plan, int rank) {
  std::string text = "rank " + std::to_string(rank);
  const std::vector<int> &stages = plan.ranks[rank].stages;
  if (stages.empty())
    return text;
  text += stages.size() > 1 ? " (stages " : " (stage ";
  for (size_t i = 0; i < stages.size(); ++i)
    text += (i ? ", " : "") + std::to_string(stages[i]);
  return text + ")";
}

int64_t elements(const plan::Weight &weight) {
  int64_t count = 1;
  for (int64_t dim : weight.shape)
    count *= dim;
  return count;
}

} // namespace pipec
