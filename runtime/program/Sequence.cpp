//===- Sequence.cpp - the tasks of a rank, in order -----------------------===//
#include "runtime/program/Sequence.h"
#include "runtime/program/Memory.h"

#include <algorithm>
#include <numeric>

namespace pipec::plan {

bool touches(char kind, PipecRegion region) {
  switch (region) {
  case PIPEC_IN:
  case PIPEC_STASH:
    return true;
  case PIPEC_OUT:
  case PIPEC_STATS:
    return kind == 'F';
  case PIPEC_GRAD_IN: // a weight gradient may read what came in, too
    return kind != 'F';
  case PIPEC_GRAD_OUT:
    return kind == 'B' || kind == 'I';
  case PIPEC_WSTASH:
    return kind == 'I' || kind == 'W';
  default:
    return false;
  }
}

PipecRegion regionNamed(const std::string &name) {
  static const char *const names[] = {
      "workspace", "constants", "weights", "new_weights",
      "gradients", "optimizer", "state",   "stats",
      "in",        "stash",     "out",     "grad_in",
      "grad_out",  "wstash",    "loss",    "outputs"};
  for (int i = 0; i < PIPEC_REGION_COUNT; ++i)
    if (name == names[i])
      return static_cast<PipecRegion>(i);
  return PIPEC_REGION_COUNT;
}

Sequence Sequence::step(const Plan &plan, int rank) {
  Sequence sequence;
  std::vector<bool> tracks(plan.stages.size()); // has several slots of stats
  for (int stage : plan.ranks[rank].stages)
    tracks[stage] = regionOf(plan.stages[stage], "stats").slots > 1;
  sequence.tasks.reserve(plan.ranks[rank].program.actions.size());
  for (const Action &action : plan.ranks[rank].program.actions) {
    Task task;
    task.kind = action.kind[0];
    task.stage = action.stage;
    task.microbatch = action.microbatch;
    for (auto [region, name] : kSlotted)
      if (action.slots.has(region))
        task.slot[region] = action.slots.at(region);
    if (tracks[action.stage])
      task.slot[PIPEC_STATS] = action.microbatch;
    sequence.tasks.push_back(task);
  }
  // A microbatch's last task on its stage, found from the end.
  std::vector<std::vector<bool>> seen(plan.stages.size());
  for (auto task = sequence.tasks.rbegin(); task != sequence.tasks.rend();
       ++task) {
    std::vector<bool> &done = seen[task->stage];
    done.resize(plan.training.microbatches);
    task->last = !done[task->microbatch];
    done[task->microbatch] = true;
  }
  sequence.count = static_cast<int64_t>(sequence.tasks.size());
  return sequence;
}

Sequence Sequence::stream(const Plan &plan, int rank, int64_t first,
                          int64_t last) {
  Sequence sequence;
  const Stage &stage = plan.stages[plan.ranks[rank].stages[0]];
  sequence.streaming = true;
  sequence.proto.stage = stage.id;
  for (auto [region, name] : kSlotted)
    sequence.slots[region] = regionOf(stage, name).slots;
  sequence.replicas = static_cast<int>(stage.ranks.size());
  sequence.replica =
      static_cast<int>(std::find(stage.ranks.begin(), stage.ranks.end(), rank) -
                       stage.ranks.begin());
  sequence.firstRound = first / sequence.replicas;
  const int64_t mine = last - sequence.replica;
  const int64_t end =
      mine <= 0 ? 0 : (mine + sequence.replicas - 1) / sequence.replicas;
  sequence.rounds = std::max<int64_t>(0, end - sequence.firstRound);
  sequence.warmup = std::min<int64_t>(stage.warmup, sequence.rounds);
  sequence.count = 2 * sequence.rounds;
  return sequence;
}

Task Sequence::at(int64_t index) const {
  if (!streaming)
    return tasks[index];
  Task task = proto;
  const int64_t pairs = rounds - warmup;
  int64_t round = 0;
  if (index < warmup) {
    task.kind = 'F', round = index;
  } else if (index < warmup + 2 * pairs) {
    const int64_t pair = (index - warmup) / 2;
    task.kind = (index - warmup) % 2 ? 'B' : 'F';
    round = task.kind == 'F' ? pair + warmup : pair;
  } else {
    task.kind = 'B', round = index - rounds;
  }
  task.last = task.kind == 'B';
  task.local = firstRound + round;
  task.microbatch = task.local * replicas + replica;
  for (auto [region, name] : kSlotted)
    task.slot[region] =
        static_cast<int32_t>(task.local % std::max(1, slots[region]));
  return task;
}

std::vector<StageEdges> stageEdges(const Plan &plan) {
  std::vector<StageEdges> result(plan.stages.size());
  for (const Edge &edge : plan.edges) {
    StageEdges &from = result[edge.from_stage], &to = result[edge.to_stage];
    (edge.backward ? from.backwardOut : from.forwardOut).push_back(edge.id);
    (edge.backward ? to.backwardIn : to.forwardIn).push_back(edge.id);
  }
  return result;
}

int64_t roundLength(const Plan &plan) {
  int64_t length = 1;
  for (const Stage &stage : plan.stages)
    length = std::lcm(length, static_cast<int64_t>(stage.ranks.size()));
  return length;
}

std::vector<int64_t> tasksAhead(const Plan &plan) {
  const std::vector<StageEdges> edges = stageEdges(plan);
  const auto ranks = static_cast<int>(plan.ranks.size());
  std::vector<int64_t> ahead(plan.ranks.size(), 0);
  std::vector<int64_t> forwards(plan.stages.size(), 0); // ahead, by stage
  for (int rank = 0; rank + 1 < ranks; ++rank)
    for (const Action &action : plan.ranks[rank].program.actions) {
      const auto follows = [&](int id) {
        const Edge &edge = plan.edges[id];
        return plan.stages[edge.from_stage].ranks[0] <= rank &&
               forwards[edge.from_stage] > forwards[edge.to_stage];
      };
      const std::vector<int> &into = edges[action.stage].forwardIn;
      if (action.kind != "F" || plan.stages[action.stage].computes_loss ||
          !std::all_of(into.begin(), into.end(), follows))
        break;
      ++ahead[rank], ++forwards[action.stage];
    }
  return ahead;
}

bool repeats(const Plan &plan) {
  return !forwardOnly(plan) && plan.ranks[0].program.kind == "step";
}

bool forwardOnly(const Plan &plan) {
  for (const Rank &rank : plan.ranks) {
    if (rank.program.kind == "stream")
      return false;
    for (const Action &action : rank.program.actions)
      if (action.kind != "F")
        return false;
  }
  return true;
}

} // namespace pipec::plan
