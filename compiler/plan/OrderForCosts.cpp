#include "compiler/plan/OrderForCosts.h"

#include "compiler/plan/Infeasible.h"
#include "compiler/plan/ScheduleCosts.h"
#include "compiler/plan/StepModel.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Pipelines.h"
#include "support/Failure.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

namespace pipec::plan {

namespace {

/// Bytes of each microbatch in flight, and more of it between the halves of
/// its backward.
double perMicrobatch(const StagePlan &stage) {
  return static_cast<double>(stage.memory.stash) / std::max(1, stage.inFlight) +
         static_cast<double>(stage.receiveBytes);
}
double perHalf(const StagePlan &stage) {
  return static_cast<double>(stage.memory.handover) / stage.betweenHalves;
}

/// Where one pipeline alone has its stages.
std::vector<std::vector<int>> onePipeline(const PlanRequest &asked,
                                          size_t stages) {
  return assignDevices(asked.strategy, std::vector<int>(stages, 1), false);
}

/// Times, transfers and activations of the stages, and what each device has
/// left for activations: of one pipeline, as its copies have the same.
schedule::ScheduleRequest requestFor(const PlanRequest &asked,
                                     const std::vector<StagePlan> &stages) {
  schedule::ScheduleRequest request;
  int chunks = std::max(1, asked.strategy.chunks);
  request.devices = static_cast<int>(stages.size()) / chunks;
  request.chunks = chunks;
  const int copies = stages.front().replicas;
  request.microbatches = (asked.microbatches + copies - 1) / copies;
  const auto devicesOf = onePipeline(asked, stages.size());
  if (asked.effort < PlanRequest::kGlance)
    request.effort = 0.1;
  schedule::Costs costs = scheduleCosts(asked.topology, stages);
  schedule::DeviceCosts &devices = request.costs;
  devices.memoryForward.assign(request.devices, 0);
  devices.memoryInput.assign(request.devices, 0);
  std::vector<double> rest(request.devices, 0);
  for (size_t s = 0; s < stages.size(); ++s) {
    const double stash = perMicrobatch(stages[s]), half = perHalf(stages[s]);
    // A stage without arithmetic still takes its turn.
    costs.forward[s] = std::max(costs.forward[s], 1e-9);
    costs.memoryForward[s] = stash;
    costs.memoryInput[s] = half;
    costs.memoryWeight[s] = -stash - half;
    for (int d : devicesOf[s]) {
      devices.memoryForward[d] += stash;
      devices.memoryInput[d] += half;
      rest[d] += static_cast<double>(stages[s].memory.total()) -
                 stash * stages[s].inFlight - half * stages[s].betweenHalves;
    }
  }
  for (int d = 0; d < request.devices; ++d)
    devices.memoryWeight.push_back(-devices.memoryForward[d] -
                                   devices.memoryInput[d]);
  auto limit = static_cast<double>(memoryLimitOf(asked));
  constexpr double kNoLimit = 1e15;
  if (limit < kNoLimit)
    for (double fixed : rest)
      devices.limit.push_back(std::max(0.0, limit - fixed));
  request.stageCosts = std::move(costs);
  return request;
}

/// The order for every copy of the pipeline, whose devices are those that hold
/// the stages: the order may lay stages out among them in another way.
schedule::Schedule onAllDevices(schedule::Schedule one,
                                const PlanRequest &asked,
                                const std::vector<StagePlan> &stages) {
  if (stages.front().replicas == 1)
    return one;
  const auto planned = onePipeline(asked, stages.size());
  std::vector<std::vector<int>> copies(stages.size()), placement;
  for (size_t s = 0; s < stages.size(); ++s)
    copies[static_cast<size_t>(planned[s].front())] = stages[s].devices;
  for (const std::vector<int> &on : one.placement)
    placement.push_back(copies[static_cast<size_t>(on.front())]);
  return schedule::repeated(one, asked.microbatches, std::move(placement));
}

/// What the request comes to where there is room for everything.
std::optional<OrderedPlan> orderOfAllKept(const std::string &schedule,
                                          const PlanRequest &asked) {
  PlanRequest unlimited = asked;
  unlimited.memoryLimit = -1;
  unlimited.baselines = false;
  if (asked.recompute == Recompute::Auto)
    unlimited.recompute = Recompute::None;
  try {
    return orderForCosts(schedule, asked, makePlan(unlimited));
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
      throw;
    return std::nullopt;
  }
}

/// The order for the cut that is made within the limit.
OrderedPlan orderOfOwnCut(const std::string &schedule,
                          const PlanRequest &asked) {
  const PlanResult cut = makePlan(asked);
  OrderedPlan plan = orderForCosts(schedule, asked, cut);
  plan.result.limitBinds |= cut.limitBinds;
  return plan;
}

/// Whether without a limit it could be another plan.
bool memoryBinds(const OrderedPlan &plan, const PlanRequest &asked) {
  const auto isAgain = [](const StagePlan &stage) { return stage.recompute; };
  const bool binds = plan.result.limitBinds ||
                     (asked.recompute == Recompute::Auto &&
                      std::ranges::any_of(plan.result.stages, isAgain));
  return binds && memoryLimitOf(asked) != INT64_MAX;
}

} // namespace

OrderedPlan orderForCosts(const std::string &schedule, const PlanRequest &asked,
                          const PlanResult &result) {
  OrderedPlan plan;
  plan.request = asked;
  plan.request.cuts.clear();
  for (const StagePlan &stage : result.stages)
    plan.request.cuts.push_back(stage.firstNode);
  const int copies = result.stages.front().replicas;
  plan.request.replicas.assign(copies > 1 ? result.stages.size() : 0, copies);
  // Without a barrier the span decides more than the makespan does, but a step
  // also waits for the norm and the verdict: the judge takes the better of
  // both.
  std::vector<schedule::Metric> metrics{schedule::Metric::Makespan};
  if (!asked.strategy.barrier)
    metrics.push_back(schedule::Metric::Span);
  schedule::ScheduleRequest wanted = requestFor(asked, result.stages);
  for (schedule::Metric metric : metrics) {
    wanted.metric = metric;
    OrderedPlan other{plan.request, {}};
    other.request.strategy = factsOfOrder(onAllDevices(
        schedule::generate(schedule, wanted), asked, result.stages));
    other.request.strategy.severalPipelines = copies > 1;
    other.request.strategy.barrier = asked.strategy.barrier;
    other.request.strategy.name = asked.strategy.name;
    other.result = makePlan(other.request);
    if (plan.result.stages.empty() ||
        other.result.stepSeconds < plan.result.stepSeconds)
      plan = std::move(other);
  }
  return plan;
}

OrderedPlan cutAndOrder(const std::string &schedule, const PlanRequest &asked) {
  std::optional<OrderedPlan> plan;
  std::exception_ptr refusal;
  try {
    plan = orderOfOwnCut(schedule, asked);
  } catch (const NoFit &) {
    refusal = std::current_exception();
  }
  if (plan && !memoryBinds(*plan, asked))
    return std::move(*plan);
  std::optional<OrderedPlan> kept = orderOfAllKept(schedule, asked);
  if (!kept && refusal)
    std::rethrow_exception(refusal);
  if (!kept || (plan && kept->result.stepSeconds >= plan->result.stepSeconds))
    return std::move(*plan);
  kept->result.limitBinds = true;
  return std::move(*kept);
}

} // namespace pipec::plan
