//===- Planning.cpp - strategy, stages and schedule of a model ------------===//
#include "compiler/driver/Planning.h"

#include "compiler/driver/AllStrategies.h"
#include "compiler/driver/OneStrategy.h"
#include "compiler/driver/OrderFile.h"
#include "compiler/driver/PlannedOrder.h"
#include "compiler/driver/SmallestPlan.h"
#include "compiler/driver/StagesByHand.h"
#include "compiler/plan/Baselines.h"
#include "support/Failure.h"

#include <algorithm>

namespace pipec {

std::vector<int64_t> Decision::cuts() const {
  std::vector<int64_t> cuts;
  for (size_t i = 1; i < result.stages.size(); ++i)
    cuts.push_back(result.stages[i].firstNode);
  return cuts;
}

std::vector<int64_t> Decision::recomputedStages() const {
  const auto count = static_cast<int64_t>(result.stages.size());
  std::vector<int64_t> stages;
  for (int64_t s = 0; s < count * slices; ++s)
    if (result.stages[static_cast<size_t>(s % count)].recompute)
      stages.push_back(s);
  return stages;
}

bool Decision::recomputesAll() const {
  return std::ranges::all_of(result.stages, &plan::StagePlan::recompute);
}

plan::Replanned Decision::replanned(const CompileOptions &options) const {
  const std::string name = strategy ? strategy->name : request.strategy.name;
  return {result, orderFileOf(options.strategy) ? options.strategy : name,
          request.strategy.chunks};
}

bool isRefusal(const Failure &failure) {
  return failure.code == Exit::NoFit || failure.code == Exit::Usage;
}

/// The plan under the strategy asked for.
static Decision decideNamed(const CompileOptions &o,
                            const plan::CostGraph &graph,
                            const ModelFacts &facts, plan::Recompute recompute,
                            bool explainNoFit) {
  std::optional<std::string> file = orderFileOf(o.strategy);
  const strategy::StrategyRow &row =
      file ? strategy::fileStrategy() : strategy::getStrategy(o.strategy);
  if (!row.synchronous() && o.microbatches != 1)
    throw Failure(Exit::Usage,
                  "strategy " + o.strategy +
                      " updates after every microbatch: a step is one "
                      "microbatch, so leave --microbatches at 1");
  if (!row.synchronous() && o.clipNorm > 0)
    throw Failure(Exit::Usage,
                  "strategy " + o.strategy +
                      " updates each stage by itself and never has the norm "
                      "of all gradients: leave --clip-norm out, or take "
                      "another strategy");
  Decision d = askFor(row, o, graph, facts, recompute);
  findRepeats(o, facts, d.request.recompute, d.request.graph);
  d.request.explainNoFit = explainNoFit;
  if (!file && isSearched(row))
    return decideSearched(o, d);
  if (file) {
    d.schedule = readOrderFile(*file);
    splitWholeBackwards(d.schedule);
    d.request.strategy = plan::factsOfOrder(d.schedule);
  } else {
    d.request.strategy = factsOf(row, row.schedule, d.request, d.slices);
  }
  chooseShape(o, d);
  d.result = plan::makePlan(d.request);
  if (!file)
    d.schedule = scheduleFor(d);
  return d;
}

/// Where a search has found nothing: the smallest plan, if that fits, else says
/// what the smaller of those with and without recomputation needs.
static Decision decideSmallest(const CompileOptions &o,
                               const plan::CostGraph &graph,
                               const ModelFacts &facts) {
  std::optional<plan::NoFit> refusal;
  try {
    return decideNamed(o, graph, facts, plan::Recompute::None, true);
  } catch (const plan::NoFit &failure) {
    refusal.emplace(failure);
  }
  try {
    return decideNamed(o, graph, facts, plan::Recompute::Auto, true);
  } catch (const plan::NoFit &failure) {
    if (needOf(failure) < needOf(*refusal))
      refusal.emplace(failure);
  } catch (const Failure &failure) {
    if (!isRefusal(failure))
      throw;
  }
  throw *refusal;
}

/// The plan under the strategy asked for. Where memory decides about it, stages
/// that do not fit otherwise compute their activations again, if that is
/// faster.
static Decision decideNamedAuto(const CompileOptions &o,
                                const plan::CostGraph &graph,
                                const ModelFacts &facts) {
  std::optional<Decision> kept, again;
  try {
    kept = decideNamed(o, graph, facts, plan::Recompute::None, false);
    if (!kept->result.limitBinds || kept->strategy->recompute) {
      kept->request.explainNoFit = true;
      return std::move(*kept);
    }
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit)
      throw;
  }
  try {
    again = decideNamed(o, graph, facts, plan::Recompute::Auto, false);
  } catch (const Failure &failure) {
    if (!isRefusal(failure))
      throw;
  }
  if (!kept && !again)
    return decideSmallest(o, graph, facts);
  const bool faster =
      again && (!kept || again->result.stepSeconds < kept->result.stepSeconds);
  Decision &better = faster ? *again : *kept;
  better.request.explainNoFit = true;
  return std::move(better);
}

/// An order by hand has as many ranks as lines, whatever the cluster has.
static void noteIdleDevices(const ModelFacts &facts, Decision &d) {
  const schedule::Schedule &order = d.schedule;
  const int there = facts.topology.devices();
  if (order.devices() < there)
    d.notes.push_back("the order of " + order.name + " is for " +
                      std::to_string(order.devices()) + " ranks: " +
                      std::to_string(there - order.devices()) + " of " +
                      std::to_string(there) + " devices have nothing to do");
}

/// What stands beside a plan that was made without what code works in needs it
/// all the same.
static void priceWithWorkspace(CompileOptions o, const plan::CostGraph &graph,
                               const ModelFacts &facts, Decision &d) {
  if (!o.withoutWorkspace || d.result.baselines.empty())
    return;
  o.withoutWorkspace = false;
  plan::PlanRequest whole = d.request;
  whole.graph = graph;
  findRepeats(o, facts, whole.recompute, whole.graph);
  d.result.baselines = plan::priceBaselines(whole, d.result);
}

Decision decide(const CompileOptions &o, const plan::CostGraph &graph,
                const ModelFacts &facts) {
  Decision d = o.strategy == "auto" ? decideBest(o, graph, facts)
               : o.recompute == "auto"
                   ? decideNamedAuto(o, graph, facts)
                   : decideNamed(o, graph, facts, recomputeAsked(o), true);
  priceWithWorkspace(o, graph, facts, d);
  if (orderFileOf(o.strategy))
    noteIdleDevices(facts, d);
  return d;
}

plan::Replanned planLikeCompile(CompileOptions asked,
                                const plan::CostGraph &graph,
                                const ModelFacts &facts) {
  try {
    return decide(asked, graph, facts).replanned(asked);
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit)
      throw;
    asked.withoutWorkspace = asked.quick = true;
    plan::Replanned close = decide(asked, graph, facts).replanned(asked);
    close.isClose = true;
    return close;
  }
}

CompileOptions optionsUnder(const CompileOptions &o, const ModelFacts &facts,
                            const plan::PlanRequest &changed) {
  CompileOptions asked = o;
  asked.microbatches = changed.microbatches;
  asked.memoryLimit = changed.memoryLimit;
  if (changed.topology.devices() != facts.topology.devices()) {
    const bool isFree =
        o.stages == "auto" && o.replicas.empty() && o.stageFile.empty();
    asked.stageFile = asked.replicas = "";
    asked.stages = isFree || !changed.stages ? std::string("auto")
                                             : std::to_string(*changed.stages);
  }
  return asked;
}

std::optional<plan::PlanRequest> requestAsRun(const strategy::StrategyRow &row,
                                              const CompileOptions &o,
                                              const plan::CostGraph &graph,
                                              const ModelFacts &facts,
                                              const plan::MeasuredStep &step) {
  if (isSearched(row) || isSliced(row))
    return std::nullopt;
  using enum plan::Recompute;
  plan::PlanRequest request = askFor(row, o, graph, facts, None).request;
  const bool again = std::ranges::count(step.recompute, true) > 0;
  findRepeats(o, facts, again ? Auto : None, request.graph);
  request.microbatches = step.microbatches;
  request.strategy = factsOf(row, row.schedule, request);
  request.strategy.barrier |= areReplicated(step.replicas);
  return request;
}

//===----------------------------------------------------------------------===//
// Without training
//===----------------------------------------------------------------------===//

/// The facts of gpipe, whose backwards cost nothing here, without what they
/// would need kept.
static plan::StrategyFacts forwardFacts() {
  plan::StrategyFacts facts =
      plan::strategyFacts(strategy::forwardStrategy().schedule);
  facts.name = strategy::forwardStrategy().name;
  facts.inFlight = [](const plan::StagePosition &) { return 1; };
  facts.gradientCopies = 0;
  return facts;
}

static schedule::Schedule forwardSchedule(const Decision &d) {
  schedule::Schedule schedule = scheduleFor(d);
  for (auto &order : schedule.order)
    std::erase_if(order, [](const schedule::Action &action) {
      return action.kind != schedule::Kind::F;
    });
  return schedule;
}

/// One stage a rank while the model has nodes enough, else copies of one.
static void spread(plan::PlanRequest &request, int ranks) {
  const auto starts = static_cast<int>(plan::legalStarts(request.graph).size());
  if (starts >= ranks)
    request.replicas.assign(static_cast<size_t>(ranks), 1);
  else
    request.replicas = {ranks};
  request.stages = static_cast<int>(request.replicas.size());
}

Decision decideForward(const CompileOptions &o, const plan::CostGraph &graph,
                       const ModelFacts &facts, std::optional<int> ranks) {
  Decision d;
  d.strategy = &strategy::forwardStrategy();
  d.request.graph = graph;
  d.request.topology = facts.topology;
  d.request.strategy = forwardFacts();
  d.request.microbatches = o.microbatches;
  d.request.microbatchSize = static_cast<int>(facts.microbatchSize);
  setLimit(o, facts, d.request);
  if (ranks) {
    spread(d.request, *ranks);
  } else {
    readStages(o, d.request, d.notes);
  }
  d.result = plan::makePlan(d.request);
  std::erase_if(d.result.baselines, [](const plan::Baseline &baseline) {
    return baseline.name == "gpipe"; // which this is
  });
  d.schedule = forwardSchedule(d);
  return d;
}

} // namespace pipec
