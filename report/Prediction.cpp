//===- Prediction.cpp - a plan's step as a timeline ----------------------===//
#include "report/Prediction.h"

#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"

#include <algorithm>

namespace pipec::report {

using schedule::Kind;

namespace {

bool isStream(const plan::Plan &plan) {
  return !plan.ranks.empty() && plan.ranks[0].program.kind == "stream";
}

Kind kindOf(char letter) {
  switch (letter) {
  case 'B':
    return Kind::B;
  case 'I':
    return Kind::I;
  case 'W':
    return Kind::W;
  default:
    return Kind::F;
  }
}

/// Pieces of sequences are stages in a plan, but microbatches of P stages in
/// the schedule: there it is known what each of them waits for.
schedule::Schedule rolled(schedule::Schedule schedule, int slices) {
  schedule.slices = slices;
  schedule.stages /= slices;
  schedule.microbatches *= slices;
  schedule.placement.resize(static_cast<size_t>(schedule.stages));
  for (auto &order : schedule.order)
    for (schedule::Action &action : order) {
      action.microbatch =
          action.microbatch * slices + action.stage / schedule.stages;
      action.stage %= schedule.stages;
    }
  return schedule;
}

schedule::Schedule scheduleOf(const plan::Plan &plan) {
  schedule::Schedule schedule;
  const bool stream = isStream(plan);
  const int64_t window = stream ? streamWindow(plan) : 0;
  schedule.name = plan.schedule;
  schedule.stages = static_cast<int>(plan.stages.size());
  schedule.microbatches =
      stream ? static_cast<int>(window) : plan.training.microbatches;
  for (const plan::Stage &stage : plan.stages)
    schedule.placement.push_back(stage.ranks);
  for (const plan::Rank &rank : plan.ranks) {
    plan::Sequence tasks =
        stream ? plan::Sequence::stream(plan, rank.rank, 0, window)
               : plan::Sequence::step(plan, rank.rank);
    auto &order = schedule.order.emplace_back();
    for (int64_t i = 0; i < tasks.size(); ++i) {
      plan::Task task = tasks.at(i);
      order.push_back(
          {kindOf(task.kind), task.stage, static_cast<int>(task.microbatch)});
    }
  }
  return schedule;
}

int64_t slotBytes(const plan::Stage &stage, const char *region) {
  return plan::alignUp(plan::regionOf(stage, region).bytes);
}

schedule::Costs costsOf(const plan::Plan &plan) {
  schedule::Costs costs;
  for (const plan::Stage &stage : plan.stages) {
    costs.forward.push_back(stage.cost.forward_s);
    costs.backwardInput.push_back(stage.cost.backward_input_s);
    costs.backwardWeight.push_back(stage.cost.backward_weight_s);
    double stash = static_cast<double>(slotBytes(stage, "stash"));
    double wstash = static_cast<double>(slotBytes(stage, "wstash"));
    costs.memoryForward.push_back(stash);
    costs.memoryInput.push_back(wstash);
    costs.memoryWeight.push_back(-stash - wstash);
  }
  return costs;
}

/// Of P stages, whose pieces cost what they do on average.
schedule::Costs rolled(schedule::Costs costs, int slices) {
  for (auto *list :
       {&costs.forward, &costs.backwardInput, &costs.backwardWeight,
        &costs.memoryForward, &costs.memoryInput, &costs.memoryWeight}) {
    const size_t stages = list->size() / static_cast<size_t>(slices);
    for (size_t i = stages; i < list->size(); ++i)
      (*list)[i % stages] += (*list)[i];
    list->resize(stages);
    for (double &value : *list)
      value /= slices;
  }
  return costs;
}

} // namespace

int64_t streamWindow(const plan::Plan &plan) {
  int64_t rounds = 0;
  for (const plan::Stage &stage : plan.stages)
    rounds = std::max<int64_t>(
        rounds, (stage.warmup + 1) * static_cast<int64_t>(stage.ranks.size()));
  const int64_t unit = plan::roundLength(plan);
  return (3 * rounds + unit - 1) / unit * unit;
}

std::optional<Prediction> predict(const plan::Plan &plan) {
  double work = 0;
  for (const plan::Stage &stage : plan.stages)
    work += stage.cost.forward_s;
  if (!(work > 0) || plan.ranks.empty())
    return std::nullopt;
  Prediction prediction;
  prediction.schedule = scheduleOf(plan);
  prediction.timeline =
      simulate(rolled(prediction.schedule, plan.strategy.slices),
               rolled(costsOf(plan), plan.strategy.slices));
  return prediction;
}

std::vector<MemoryPoint> memoryOverTime(const plan::Plan &plan, int rank,
                                        const Prediction &prediction) {
  const schedule::Costs costs = costsOf(plan);
  const auto &order = prediction.schedule.order[rank];
  const schedule::Timeline &timeline = prediction.timeline;
  const int64_t fixed =
      plan.ranks[rank].peak_bytes - plan.ranks[rank].stash_bytes;
  // What a forward keeps it needs from its start; what a backward frees it
  // frees at its end.
  std::vector<std::pair<double, double>> changes;
  for (size_t i = 0; i < order.size(); ++i) {
    double change = costs.memory(order[i].kind, order[i].stage, rank);
    changes.push_back(
        {change >= 0 ? timeline.start[rank][i] : timeline.end[rank][i],
         change});
  }
  std::sort(changes.begin(), changes.end());
  std::vector<MemoryPoint> points = {{0, fixed}};
  double used = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    used += changes[i].second;
    // Freed and taken at one instant: the tasks follow each other.
    if (i + 1 < changes.size() && changes[i + 1].first == changes[i].first)
      continue;
    points.push_back({changes[i].first, fixed + static_cast<int64_t>(used)});
  }
  return points;
}

} // namespace pipec::report
