#include "compiler/plan/OrderForCosts.h"

#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/ScheduleCosts.h"
#include "compiler/plan/StepModel.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Pipelines.h"
#include "support/Ahead.h"
#include "support/Failure.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace pipec::plan {

namespace {

/// Plans that may not fit, or not apply.
class Refusals {
public:
  /// What `make` returns; nothing where it is refused.
  template <typename Make>
  std::optional<std::invoke_result_t<Make>> tried(Make make) {
    try {
      return make();
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
        throw;
      if (!first)
        first = std::current_exception();
      return std::nullopt;
    }
  }
  /// The first refusal; there was one.
  [[noreturn]] void refuse() const { std::rethrow_exception(first); }

private:
  std::exception_ptr first;
};

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
  std::vector<DeviceBytes> bytes(static_cast<size_t>(request.devices));
  std::vector<double> inUse(bytes.size(), 0);
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
      bytes[static_cast<size_t>(d)].add(stages[s].memory);
      inUse[static_cast<size_t>(d)] +=
          stash * stages[s].inFlight + half * stages[s].betweenHalves;
    }
  }
  for (int d = 0; d < request.devices; ++d)
    devices.memoryWeight.push_back(-devices.memoryForward[d] -
                                   devices.memoryInput[d]);
  auto limit = static_cast<double>(memoryLimitOf(asked));
  constexpr double kNoLimit = 1e15;
  if (limit < kNoLimit)
    for (size_t d = 0; d < bytes.size(); ++d)
      devices.limit.push_back(std::max(
          0.0, limit - static_cast<double>(bytes[d].total()) + inUse[d]));
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

/// The request for the stages of `result`.
PlanRequest withCuts(PlanRequest request, const PlanResult &result) {
  request.cuts.clear();
  for (const StagePlan &stage : result.stages)
    request.cuts.push_back(stage.firstNode);
  return request;
}

/// The model cut for the plan's own order, and then, if that is faster, the
/// order for that cut.
std::optional<OrderedPlan> cutAgain(const std::string &schedule,
                                    const PlanRequest &asked,
                                    const OrderedPlan &plan) {
  constexpr double kOfEffort = 0.25; // there is a plan already
  PlanRequest free = plan.request;
  free.cuts.clear();
  free.stages = static_cast<int>(plan.result.stages.size());
  free.baselines = free.explainNoFit = false;
  free.effort *= kOfEffort;
  Refusals refusals;
  std::optional<OrderedPlan> same = refusals.tried([&] {
    OrderedPlan again{withCuts(plan.request, makePlan(free)), {}};
    again.result = makePlan(again.request);
    return again;
  });
  if (!same)
    return std::nullopt;
  std::optional<OrderedPlan> other = refusals.tried(
      [&] { return orderForCosts(schedule, asked, same->result); });
  const bool isFaster =
      other && other->result.stepSeconds < same->result.stepSeconds;
  return isFaster ? other : same;
}

/// Cut and ordered in turn while that makes it faster: an order of equal costs
/// asks for other stages than the one that is found for them.
OrderedPlan inTurn(const std::string &schedule, const PlanRequest &asked,
                   OrderedPlan plan) {
  constexpr int kMost = 4;
  constexpr double kFaster = 0.999, kEarnest = 0.25;
  constexpr size_t kMostNodes = 6000; // of more each cut takes seconds
  if (!asked.cuts.empty() || asked.effort < kEarnest ||
      asked.graph.nodes.size() > kMostNodes)
    return plan;
  for (int round = 0; round < kMost; ++round) {
    std::optional<OrderedPlan> next = cutAgain(schedule, asked, plan);
    if (!next || next->result.stepSeconds >= plan.result.stepSeconds)
      break;
    const bool isLast =
        next->result.stepSeconds > kFaster * plan.result.stepSeconds;
    next->result.limitBinds |= plan.result.limitBinds;
    plan = std::move(*next);
    if (isLast)
      break;
  }
  return plan;
}

/// What the request comes to where there is room for everything.
std::optional<OrderedPlan> orderOfAllKept(const std::string &schedule,
                                          const PlanRequest &asked) {
  PlanRequest unlimited = asked;
  unlimited.memoryLimit = -1;
  unlimited.baselines = false;
  if (asked.recompute == Recompute::Auto)
    unlimited.recompute = Recompute::None;
  return Refusals().tried([&] {
    return inTurn(schedule, asked,
                  orderForCosts(schedule, asked, makePlan(unlimited)));
  });
}

/// The order for the cut that was made within the limit.
OrderedPlan orderOfOwnCut(const std::string &schedule, const PlanRequest &asked,
                          const PlanResult &cut) {
  OrderedPlan plan = orderForCosts(schedule, asked, cut);
  plan.result.limitBinds |= cut.limitBinds;
  return inTurn(schedule, asked, std::move(plan));
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
  plan.request = withCuts(asked, result);
  const int copies = result.stages.front().replicas;
  plan.request.replicas.assign(copies > 1 ? result.stages.size() : 0, copies);
  // Without a barrier the span decides more than the makespan does, but a step
  // also waits for the norm and the verdict: the judge takes the better of
  // both.
  std::vector<schedule::Metric> metrics{schedule::Metric::Makespan};
  if (!asked.strategy.barrier)
    metrics.push_back(schedule::Metric::Span);
  const schedule::ScheduleRequest sizes = requestFor(asked, result.stages);
  Ahead<OrderedPlan> orders([&, request = plan.request](size_t metric) {
    schedule::ScheduleRequest wanted = sizes;
    wanted.metric = metrics[metric];
    OrderedPlan ordered{request, {}};
    ordered.request.strategy = factsOfOrder(onAllDevices(
        schedule::generate(schedule, wanted), asked, result.stages));
    ordered.request.strategy.severalPipelines = copies > 1;
    ordered.request.strategy.barrier = asked.strategy.barrier;
    ordered.request.strategy.name = asked.strategy.name;
    ordered.result = makePlan(ordered.request);
    return ordered;
  });
  for (size_t metric = 1; metric < metrics.size(); ++metric)
    orders.want(metric);
  Refusals refusals;
  for (size_t metric = 0; metric < metrics.size(); ++metric) {
    std::optional<OrderedPlan> other =
        refusals.tried([&] { return orders.take(metric); });
    if (other && (plan.result.stages.empty() ||
                  other->result.stepSeconds < plan.result.stepSeconds))
      plan = std::move(*other);
  }
  if (plan.result.stages.empty())
    refusals.refuse();
  return plan;
}

OrderedPlan cutAndOrder(const std::string &schedule, const PlanRequest &asked) {
  Refusals refusals;
  const std::optional<PlanResult> cut =
      refusals.tried([&] { return makePlan(asked); });
  Ahead<std::optional<OrderedPlan>> allKept(
      [&](size_t) { return orderOfAllKept(schedule, asked); });
  if (cut && cut->limitBinds && memoryLimitOf(asked) != INT64_MAX)
    allKept.want(0);
  std::optional<OrderedPlan> plan =
      cut ? refusals.tried([&] { return orderOfOwnCut(schedule, asked, *cut); })
          : std::nullopt;
  if (plan && !memoryBinds(*plan, asked))
    return std::move(*plan);
  std::optional<OrderedPlan> kept = allKept.take(0);
  if (!kept && !plan)
    refusals.refuse();
  if (!kept || (plan && kept->result.stepSeconds >= plan->result.stepSeconds))
    return std::move(*plan);
  kept->result.limitBinds = true;
  return std::move(*kept);
}

} // namespace pipec::plan
