//===- PlannedOrder.cpp - the order that a plan is run in -----------------===//
#include "compiler/driver/PlannedOrder.h"

#include "compiler/schedule/Pipelines.h"

#include <algorithm>

namespace pipec {

void splitWholeBackwards(schedule::Schedule &s) {
  bool any = false;
  for (const auto &order : s.order)
    for (const schedule::Action &action : order)
      any = any || action.kind == schedule::Kind::W;
  for (auto &order : s.order) {
    std::vector<schedule::Action> actions;
    for (schedule::Action action : order)
      if (any && action.kind == schedule::Kind::B) {
        actions.push_back({schedule::Kind::I, action.stage, action.microbatch});
        actions.push_back({schedule::Kind::W, action.stage, action.microbatch});
      } else {
        actions.push_back(action);
      }
    order = std::move(actions);
  }
}

/// Copies of a pipeline whose schedule knows none, on the devices planned.
static schedule::Schedule pipelinesFor(const Decision &d) {
  const std::vector<plan::StagePlan> &stages = d.result.stages;
  const int copies = stages.front().replicas,
            chunks = d.request.strategy.chunks;
  schedule::ScheduleRequest one;
  one.microbatches = (d.request.microbatches + copies - 1) / copies;
  one.devices = static_cast<int>(stages.size()) / chunks;
  one.chunks = chunks > 1 ? chunks : 0;
  std::vector<std::vector<int>> placement;
  for (const plan::StagePlan &stage : stages)
    placement.push_back(stage.devices);
  schedule::Schedule all =
      schedule::repeated(strategy::generate(*d.strategy, one),
                         d.request.microbatches, std::move(placement));
  schedule::VerifyOptions options;
  options.versions = strategy::versionRule(*d.strategy, all);
  schedule::verifyOrThrow(all, options);
  return all;
}

schedule::Schedule scheduleFor(const Decision &d) {
  schedule::ScheduleRequest request;
  request.microbatches = d.request.microbatches;
  request.devices = 0;
  bool replicated = false;
  for (const plan::StagePlan &stage : d.result.stages) {
    request.replicas.push_back(stage.replicas);
    request.devices += stage.replicas;
    replicated = replicated || stage.replicas > 1;
  }
  const schedule::ScheduleRow *row =
      schedule::findSchedule(d.strategy->schedule);
  if (row && !row->replicates) {
    if (replicated) {
      schedule::Schedule all = pipelinesFor(d);
      splitWholeBackwards(all);
      return all;
    }
    request.replicas.clear();
  }
  if (row && row->extra == schedule::Extra::Slices)
    request.slices = d.slices;
  if (d.request.strategy.chunks > 1) {
    request.devices /= d.request.strategy.chunks;
    request.chunks = d.request.strategy.chunks;
  }
  if (!d.strategy->synchronous())
    request.microbatches = std::max(16, 4 * request.devices);
  schedule::Schedule schedule = strategy::generate(*d.strategy, request);
  splitWholeBackwards(schedule);
  return schedule;
}

schedule::Schedule foundOrder(const Decision &d) {
  schedule::Schedule order = *d.request.strategy.order;
  order.name = d.strategy->name;
  schedule::VerifyOptions options;
  options.versions = strategy::versionRule(*d.strategy, order);
  schedule::verifyOrThrow(order, options);
  return order;
}

} // namespace pipec
