//===- AllStrategies.cpp - the fastest of all strategies ------------------===//
#include "compiler/driver/AllStrategies.h"

#include "compiler/driver/OneStrategy.h"
#include "compiler/driver/PlannedOrder.h"
#include "compiler/plan/Choose.h"
#include "compiler/plan/StepBound.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <memory>

namespace pipec {

/// Every synchronous strategy that keeps its activations. The first decides
/// between equals, and gives the reason when none fits.
static std::vector<const strategy::StrategyRow *>
strategiesToCompare(const CompileOptions &o) {
  std::vector<const strategy::StrategyRow *> rows;
  for (const strategy::StrategyRow &row : strategy::strategies())
    if (row.synchronous() && !row.recompute && (o.slices || !isSliced(row)))
      rows.push_back(&row);
  auto usual =
      std::find(rows.begin(), rows.end(), &strategy::getStrategy("1f1b"));
  std::rotate(rows.begin(), usual, usual + 1);
  return rows;
}

/// Whether an order is searched for in well under a second.
static bool quicklySearched(const plan::PlanRequest &request) {
  constexpr int64_t kMostTasks = 1500;
  const int64_t stages = request.stages.value_or(
      request.topology.devices() * std::max(1, request.strategy.chunks));
  return 3 * stages * request.microbatches <= kMostTasks;
}

/// What is asked under each strategy.
static std::vector<Decision> contenders(const CompileOptions &o,
                                        const plan::CostGraph &graph,
                                        const ModelFacts &facts) {
  std::vector<Decision> asked;
  std::optional<Failure> refusal;
  std::vector<const strategy::StrategyRow *> rows = strategiesToCompare(o);
  // One device has nothing to wait for: no order is faster than another.
  if (facts.topology.devices() == 1 && o.stages == "auto" &&
      o.stageFile.empty() && o.replicas.empty())
    rows.resize(1);
  for (const strategy::StrategyRow *row : rows)
    try {
      Decision d = askFor(*row, o, graph, facts, recomputeAsked(o));
      d.request.strategy =
          factsOf(*row, cutFor(*row).front(), d.request, d.slices);
      chooseShape(o, d);
      if (crowdsStages(d.request))
        continue;
      if (!isSearched(*row) || quicklySearched(d.request))
        asked.push_back(std::move(d));
    } catch (const Failure &failure) { // stages it cannot have
      if (failure.code != Exit::Usage)
        throw;
      if (!refusal)
        refusal.emplace(failure);
    }
  if (asked.empty())
    throw *refusal;
  return asked;
}

/// Contenders for one cluster, as the planner asks for their plans.
struct Field {
  std::vector<Decision> asked;
  std::vector<plan::PlanRequest> requests;
  plan::PlanFunction plan;
  plan::BoundFunction bound;

  Field(const CompileOptions &o, const plan::CostGraph &graph,
        const ModelFacts &facts)
      : asked(contenders(o, graph, facts)) {
    for (const Decision &d : asked)
      requests.push_back(d.request);
    plan = [&](size_t i, plan::PlanRequest request) {
      return planOf(o, facts, asked[i], std::move(request));
    };
    // A searched order may end up on another cut than the one asked with.
    bound = [&](size_t i) {
      return isSearched(*asked[i].strategy) ? 0 : plan::stepBound(requests[i]);
    };
  }
  Field(const Field &) = delete;
  Field &operator=(const Field &) = delete;

private:
  static plan::OrderedPlan search(const CompileOptions &o,
                                  const Decision &asked,
                                  plan::PlanRequest request) {
    if (!isSearched(*asked.strategy)) {
      plan::PlanResult result = plan::makePlan(request);
      return {std::move(request), std::move(result)};
    }
    Decision d = asked;
    d.request = std::move(request);
    d = decideSearched(o, d);
    return {std::move(d.request), std::move(d.result)};
  }

  /// The same, nothing where none fits that keeps all activations.
  static std::optional<plan::OrderedPlan> keeping(const CompileOptions &o,
                                                  const Decision &asked,
                                                  plan::PlanRequest request) {
    request.recompute = plan::Recompute::None;
    try {
      return search(o, asked, std::move(request));
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit)
        throw;
      return std::nullopt;
    }
  }

  /// With all activations kept where the limit did not bind for the one that
  /// was planned first, as what recomputation works in need not be found then,
  /// and in a search in earnest, as who asks for the strategy by name.
  plan::OrderedPlan planOf(const CompileOptions &o, const ModelFacts &facts,
                           const Decision &asked, plan::PlanRequest request) {
    const bool isFirst = !limitBinds;
    if (isFirst)
      limitBinds = false;
    std::optional<plan::OrderedPlan> kept;
    if (request.recompute == plan::Recompute::Auto &&
        (!*limitBinds || request.effort >= 1)) {
      kept = keeping(o, asked, request);
      if (kept && !kept->result.limitBinds)
        return std::move(*kept);
      if (isFirst)
        limitBinds = true;
    }
    findRepeats(o, facts, request.recompute, request.graph);
    try {
      plan::OrderedPlan made = search(o, asked, std::move(request));
      if (!kept || made.result.stepSeconds < kept->result.stepSeconds)
        return made;
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit || !kept)
        throw;
    }
    return std::move(*kept);
  }

  /// For the strategy that was planned first. Written before there are other
  /// threads (PlanFunction).
  std::optional<bool> limitBinds;
};

/// The least that a plan takes whatever its schedule.
static double leastWork(const plan::CostGraph &graph, int devices,
                        int microbatches) {
  double seconds = 0;
  for (const plan::CostNode &node : graph.nodes)
    seconds += node.forwardSeconds + node.backwardInputSeconds +
               node.backwardWeightSeconds;
  return seconds * microbatches / devices;
}

Decision decideBest(const CompileOptions &o, const plan::CostGraph &graph,
                    const ModelFacts &facts) {
  auto field = std::make_unique<Field>(o, graph, facts);
  plan::StrategyChoice choice =
      plan::chooseStrategy(field->requests, field->plan, field->bound);
  Decision d = std::move(field->asked[choice.chosen]);
  field.reset();
  // A large cluster is not there to be left idle, and each part takes as long
  // as all of it.
  constexpr int kMostCompared = 64;
  const bool isFree =
      o.stages == "auto" && o.stageFile.empty() && o.replicas.empty() &&
      !o.quick && o.tensorParallel == "1" &&
      facts.topology.devices() <= kMostCompared && !choice.own.starts.empty();
  ModelFacts fewer = facts;
  while (isFree) {
    std::optional<plan::Topology> part = plan::partOf(fewer.topology);
    if (!part || leastWork(graph, part->devices(), o.microbatches) >
                     choice.result.stepSeconds)
      break;
    fewer.topology = std::move(*part);
    const Phase parted("on " + std::to_string(fewer.topology.devices()) +
                       " devices");
    Field parts(o, graph, fewer);
    if (plan::chooseOnFewer(parts.requests, choice, parts.plan, parts.bound))
      d = std::move(parts.asked[choice.chosen]);
  }
  d.request = std::move(choice.request);
  d.result = std::move(choice.result);
  d.schedule = isSearched(*d.strategy) ? foundOrder(d) : scheduleFor(d);
  return d;
}

} // namespace pipec
