//===- OneStrategy.cpp - what one strategy asks of the planner ------------===//
#include "compiler/driver/OneStrategy.h"

#include "compiler/driver/OrderFile.h"
#include "compiler/driver/PlannedOrder.h"
#include "compiler/driver/StagesByHand.h"
#include "compiler/plan/OrderForCosts.h"
#include "compiler/plan/PeakBytes.h"
#include "support/Ahead.h"
#include "support/Failure.h"

#include <algorithm>
#include <cassert>
#include <exception>

namespace pipec {

/// A fixed order says how many stages there are and where.
static void chooseShapeOfOrder(const CompileOptions &o,
                               plan::PlanRequest &request) {
  const schedule::Schedule &order = *request.strategy.order;
  int devices = request.topology.devices();
  auto refuse = [&](const std::string &why) {
    throw Failure(Exit::Usage, order.name + " " + why);
  };
  if (order.microbatches != request.microbatches)
    refuse("has " + std::to_string(order.microbatches) +
           " microbatches: give --microbatches " +
           std::to_string(order.microbatches) + ", not " +
           std::to_string(request.microbatches));
  if (order.devices() > devices)
    refuse("has " + std::to_string(order.devices()) +
           " lines, one for each rank; there are " + std::to_string(devices) +
           (devices == 1 ? " device" : " devices") +
           ": give as many (--cpus, --gpus), or an order with fewer lines");
  if (!o.replicas.empty())
    refuse("says where copies of stages are; leave --replicas out");
  if (!request.cuts.empty() &&
      request.cuts.size() != static_cast<size_t>(order.stages))
    refuse("has " + std::to_string(order.stages) + " stages, the stage file " +
           std::to_string(request.cuts.size()));
  request.replicas.clear();
  if (!request.stages)
    request.stages = order.stages;
  request.replication = false;
  request.useAllDevices = true;
}

bool areReplicated(const std::vector<int> &replicas) {
  return std::ranges::any_of(replicas, [](int r) { return r > 1; });
}

/// Ranks on CPUs form a straight pipeline unless replication was asked for, by
/// --replicas, by fewer --stages of what replicates them, or by a planner that
/// chooses them (and wherever the schedule knows no replicas): a replicated
/// stage sums gradients in another order, so that only straight ones have the
/// same bits for every number of ranks. Whole pipelines stand beside each other
/// there where --replicas says so.
void chooseShape(const CompileOptions &o, Decision &d) {
  plan::PlanRequest &request = d.request;
  int devices = request.topology.devices();
  const bool isNamed = o.strategy != "auto" && !o.ofAuto,
             onCpus = request.topology.device.kind == "cpu";
  request.replication = true; // whatever another way to cut came to
  readStages(o, request, d.notes);
  if (request.strategy.order)
    return chooseShapeOfOrder(o, request);
  if (request.strategy.severalPipelines && areReplicated(request.replicas))
    request.strategy.barrier = true;
  if (request.strategy.shape == plan::Shape::DataParallel &&
      request.cuts.size() > 1)
    throw Failure(Exit::Usage,
                  "strategy " + request.strategy.name +
                      " has one stage, the stage file has " +
                      std::to_string(request.cuts.size()) +
                      ": take another --strategy, or leave --stage-file out");
  const bool copies = request.strategy.takesCopies() &&
                      !(onCpus && request.strategy.severalPipelines);
  bool straight = o.stages == "auto" && request.replicas.empty() &&
                  o.stageFile.empty() && o.planner == "auto" &&
                  request.strategy.shape != plan::Shape::DataParallel &&
                  (!copies || (isNamed && onCpus));
  if (straight) {
    request.stages = devices * request.strategy.chunks;
    request.replication = false;
  }
  if (request.stages && request.replicas.empty() &&
      (*request.stages == devices * request.strategy.chunks || !copies))
    request.replication = false;
  request.useAllDevices = isNamed;
}

bool isSearched(const strategy::StrategyRow &row) {
  const schedule::ScheduleRow *found = schedule::findSchedule(row.schedule);
  return !found || found->readsCosts;
}

plan::StrategyFacts factsOf(const strategy::StrategyRow &row,
                            const std::string &schedule,
                            const plan::PlanRequest &request, int slices) {
  plan::StrategyFacts facts = plan::strategyFacts(schedule, 0, slices);
  facts.name = row.name; // the schedule's may be nobody's word for it
  facts.barrier = row.update != strategy::Update::Validated ||
                  request.topology.device.kind != "cpu";
  facts.searches = isSearched(row); // for the cuts of another one
  return facts;
}

std::vector<std::string> cutFor(const strategy::StrategyRow &row) {
  std::string schedule = row.schedule;
  if (schedule == "zb")
    return {"zb-h1"};
  if (schedule == "auto")
    return {"zb-h1", "zb-v"};
  return {schedule};
}

bool isSliced(const strategy::StrategyRow &row) {
  const schedule::ScheduleRow *found = schedule::findSchedule(row.schedule);
  return found && found->extra == schedule::Extra::Slices;
}

int slicesAsked(const CompileOptions &o) {
  if (o.strategy == "auto")
    return std::max(1, o.slices);
  const bool sliced =
      !orderFileOf(o.strategy) && isSliced(strategy::getStrategy(o.strategy));
  if (!sliced && o.slices)
    throw Failure(Exit::Usage,
                  "strategy " + o.strategy +
                      " does not cut sequences into pieces: leave --slices "
                      "out, or take --strategy seq1f1b");
  return !sliced ? 1 : o.slices ? o.slices : schedule::kDefaultSlices;
}

bool crowdsStages(const plan::PlanRequest &request) {
  const int chunks = std::max(1, request.strategy.chunks),
            devices = request.topology.devices();
  if (!request.stages || !request.replicas.empty())
    return false;
  const int columns = *request.stages / chunks;
  if (request.replication && request.strategy.takesCopies() && columns > 0 &&
      devices % columns == 0)
    return false;
  return columns < std::min(*request.stages, devices);
}

/// An order that is searched for keeps as many microbatches as there is room
/// for: with more it may be another one.
static bool isNearLimit(const Decision &d) {
  constexpr double kNear = 0.8;
  const auto limit = static_cast<double>(plan::memoryLimitOf(d.request));
  return static_cast<double>(plan::peakBytes(d.result.stages)) > kNear * limit;
}

/// The order for the stages' costs where the model is cut for `schedule` first;
/// nothing where stages would share devices.
static std::optional<Decision> searchedFrom(const CompileOptions &o,
                                            const Decision &asked,
                                            const std::string &schedule) {
  Decision d = asked;
  d.request.strategy = factsOf(*asked.strategy, schedule, d.request);
  chooseShape(o, d);
  if (o.strategy == "auto" && crowdsStages(d.request))
    return std::nullopt;
  plan::OrderedPlan plan = plan::cutAndOrder(d.strategy->schedule, d.request);
  d.request = std::move(plan.request);
  d.result = std::move(plan.result);
  d.result.limitBinds |= isNearLimit(d);
  return d;
}

Decision decideSearched(const CompileOptions &o, const Decision &asked) {
  const std::vector<std::string> ways = cutFor(*asked.strategy);
  Ahead<std::optional<Decision>> found(
      [&](size_t way) { return searchedFrom(o, asked, ways[way]); });
  for (size_t way = 1; way < ways.size(); ++way)
    found.want(way);
  std::optional<Decision> best;
  std::exception_ptr refusal;
  for (size_t way = 0; way < ways.size(); ++way)
    try {
      std::optional<Decision> d = found.take(way);
      if (d && (!best || d->result.stepSeconds < best->result.stepSeconds))
        best = std::move(d);
    } catch (const Failure &failure) {
      if (!isRefusal(failure))
        throw;
      if (!refusal)
        refusal = std::current_exception();
    }
  assert((best || refusal) && "contenders() leaves out who crowds stages");
  if (!best)
    std::rethrow_exception(refusal);
  best->schedule = foundOrder(*best);
  return std::move(*best);
}

int64_t limitAsked(const CompileOptions &o, const plan::Topology &topology) {
  constexpr int64_t kBesideArena = int64_t(2) << 30;
  const int64_t device = topology.device.memoryBytes;
  if (o.memoryLimit || topology.device.kind == "cpu" ||
      device < 4 * kBesideArena)
    return o.memoryLimit;
  return device - kBesideArena;
}

int64_t deviceLimit(const CompileOptions &o, const plan::Topology &topology) {
  plan::PlanRequest request;
  request.topology = topology;
  request.memoryLimit = limitAsked(o, topology);
  return plan::memoryLimitOf(request);
}

void setLimit(const CompileOptions &o, const ModelFacts &facts,
              plan::PlanRequest &request) {
  request.memoryLimit = limitAsked(o, facts.topology);
  if (o.memoryMargin == 0)
    return;
  request.trueLimit = deviceLimit(o, facts.topology);
  request.memoryLimit =
      std::max<int64_t>(1, request.trueLimit - o.memoryMargin);
}

/// Of the search, where plans have turned out too large and many are tried:
/// with a quarter of it plans of 1f1b are up to 11 % slower. What is compared
/// under `auto` is glanced at.
constexpr double kEffortOfTrials = 1.0 / 16;

Decision askFor(const strategy::StrategyRow &row, const CompileOptions &o,
                const plan::CostGraph &graph, const ModelFacts &facts,
                plan::Recompute recompute) {
  Decision d;
  d.strategy = &row;
  d.slices = isSliced(row) ? slicesAsked(o) : 1;
  d.request.graph = graph;
  if (o.withoutWorkspace)
    d.request.graph.scratch.clear();
  d.request.topology = facts.topology;
  d.request.microbatches = o.microbatches;
  d.request.microbatchSize = static_cast<int>(facts.microbatchSize);
  d.request.optimizerBytesPerParameterByte = facts.optimizerBytes;
  setLimit(o, facts, d.request);
  d.request.planner = o.planner;
  d.request.tensorParallel = groupSizes(o.tensorParallel, facts.topology);
  if (o.quick) {
    d.request.effort = kEffortOfTrials;
    d.request.namesLimitAlone = true;
  }
  d.request.clips = o.clipNorm > 0;
  d.request.recompute = row.recompute ? plan::Recompute::Full : recompute;
  return d;
}

/// Where most is in use while next to nothing
/// of a second forward pass waits, stashes stand for it, as where nothing does.
void findRepeats(const CompileOptions &o, const ModelFacts &facts,
                 plan::Recompute recompute, plan::CostGraph &graph) {
  const bool any = recompute != plan::Recompute::None;
  if (any && facts.repeats && !o.withoutWorkspace)
    graph.repeats = facts.repeats();
  constexpr int64_t kNextToNothing = 16;
  if (plan::bytesOf(graph.repeats) * kNextToNothing <
      plan::bytesOf(graph.stashes))
    graph.repeats.clear();
}

plan::Recompute recomputeAsked(const CompileOptions &o) {
  using enum plan::Recompute;
  return o.recompute == "auto" ? Auto : o.recompute == "full" ? Full : None;
}

} // namespace pipec
