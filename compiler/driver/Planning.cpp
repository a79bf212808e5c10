//===- Planning.cpp - strategy, stages and schedule of a model ------------===//
#include "compiler/driver/Planning.h"

#include "compiler/driver/OrderFile.h"
#include "compiler/driver/SmallestPlan.h"
#include "compiler/driver/StagesByHand.h"
#include "compiler/plan/Choose.h"
#include "compiler/plan/OrderForCosts.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/StepBound.h"
#include "compiler/plan/StrategyFacts.h"
#include "compiler/schedule/Pipelines.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>

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

//===----------------------------------------------------------------------===//
// One strategy
//===----------------------------------------------------------------------===//

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

static bool areReplicated(const std::vector<int> &replicas) {
  return std::ranges::any_of(replicas, [](int r) { return r > 1; });
}

/// Ranks on CPUs form a straight pipeline unless replication was asked for, by
/// --replicas, by fewer --stages of what replicates them, or by a planner that
/// chooses them (and wherever the schedule knows no replicas): a replicated
/// stage sums gradients in another order, so that only straight ones have the
/// same bits for every number of ranks. Whole pipelines stand beside each other
/// there where --replicas says so.
static void chooseShape(const CompileOptions &o, Decision &d) {
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

/// Stages have either whole or split backward tasks: where an order has both
/// (as DualPipe's), a whole one becomes its two halves, one after the other.
static void splitWholeBackwards(schedule::Schedule &s) {
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

/// Whether its order depends on what the stages cost.
static bool isSearched(const strategy::StrategyRow &row) {
  const schedule::ScheduleRow *found = schedule::findSchedule(row.schedule);
  return !found || found->readsCosts;
}

/// The planner's facts of a strategy that trains with `schedule`. On GPUs no
/// update is taken back: every step ends with a barrier.
static plan::StrategyFacts factsOf(const strategy::StrategyRow &row,
                                   const std::string &schedule,
                                   const plan::PlanRequest &request,
                                   int slices = 1) {
  plan::StrategyFacts facts = plan::strategyFacts(schedule, 0, slices);
  facts.name = row.name; // the schedule's may be nobody's word for it
  facts.barrier = row.update != strategy::Update::Validated ||
                  request.topology.device.kind != "cpu";
  facts.searches = isSearched(row); // for the cuts of another one
  return facts;
}

bool isRefusal(const Failure &failure) {
  return failure.code == Exit::NoFit || failure.code == Exit::Usage;
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

static schedule::Schedule scheduleFor(const Decision &d) {
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

/// The schedules for which the model is cut, where the order is then searched
/// for the stages that come out.
static std::vector<std::string> cutFor(const strategy::StrategyRow &row) {
  std::string schedule = row.schedule;
  if (schedule == "zb")
    return {"zb-h1"};
  if (schedule == "auto")
    return {"zb-h1", "zb-v"};
  return {schedule};
}

static bool isSliced(const strategy::StrategyRow &row) {
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

/// The order that was found for the costs, verified.
static schedule::Schedule foundOrder(const Decision &d) {
  schedule::Schedule order = *d.request.strategy.order;
  order.name = d.strategy->name;
  schedule::VerifyOptions options;
  options.versions = strategy::versionRule(*d.strategy, order);
  schedule::verifyOrThrow(order, options);
  return order;
}

/// Whether so many stages are to share devices while others have none, which
/// nobody means who says how many stages there are. Copies fill all of them.
static bool crowdsStages(const plan::PlanRequest &request) {
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

/// The fastest order for the stages' costs, over the ways to cut.
static Decision decideSearched(const CompileOptions &o, const Decision &asked) {
  std::optional<Decision> best;
  std::exception_ptr refusal;
  for (const std::string &schedule : cutFor(*asked.strategy))
    try {
      Decision d = asked;
      d.request.strategy = factsOf(*asked.strategy, schedule, d.request);
      chooseShape(o, d);
      if (o.strategy == "auto" && crowdsStages(d.request))
        continue;
      plan::OrderedPlan plan =
          plan::cutAndOrder(d.strategy->schedule, d.request);
      d.request = std::move(plan.request);
      d.result = std::move(plan.result);
      d.result.limitBinds |= isNearLimit(d);
      if (!best || d.result.stepSeconds < best->result.stepSeconds)
        best = std::move(d);
    } catch (const Failure &failure) {
      if (!isRefusal(failure))
        throw;
      if (!refusal)
        refusal = std::current_exception();
    }
  if (!best)
    std::rethrow_exception(refusal);
  best->schedule = foundOrder(*best);
  return std::move(*best);
}

/// Bytes a device for a plan's arena, 0 for all of it. A GPU's context, code
/// and libraries need some as well.
static int64_t limitAsked(const CompileOptions &o,
                          const plan::Topology &topology) {
  constexpr int64_t kBesideArena = int64_t(2) << 30;
  const int64_t device = topology.device.memoryBytes;
  if (o.memoryLimit || topology.device.kind == "cpu" ||
      device < 4 * kBesideArena)
    return o.memoryLimit;
  return device - kBesideArena;
}

/// The limit that the planner is given.
static void setLimit(const CompileOptions &o, const ModelFacts &facts,
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

/// What is asked of the planner under one strategy, but for its shape.
static Decision askFor(const strategy::StrategyRow &row,
                       const CompileOptions &o, const plan::CostGraph &graph,
                       const ModelFacts &facts, plan::Recompute recompute) {
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

/// Before a plan is searched for: where it may compute activations again it is
/// to be known what that works in. Where most is in use while next to nothing
/// of a second forward pass waits, stashes stand for it, as where nothing does.
static void findRepeats(const CompileOptions &o, const ModelFacts &facts,
                        plan::Recompute recompute, plan::CostGraph &graph) {
  const bool any = recompute != plan::Recompute::None;
  if (any && facts.repeats && !o.withoutWorkspace)
    graph.repeats = facts.repeats();
  constexpr int64_t kNextToNothing = 16;
  if (plan::bytesOf(graph.repeats) * kNextToNothing <
      plan::bytesOf(graph.stashes))
    graph.repeats.clear();
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

static plan::Recompute recomputeAsked(const CompileOptions &o) {
  using enum plan::Recompute;
  return o.recompute == "auto" ? Auto : o.recompute == "full" ? Full : None;
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

  /// With all activations kept until a limit has bound once, as what
  /// recomputation works in need not be found before, and in a search in
  /// earnest, as who asks for the strategy by name.
  plan::OrderedPlan planOf(const CompileOptions &o, const ModelFacts &facts,
                           const Decision &asked, plan::PlanRequest request) {
    std::optional<plan::OrderedPlan> kept;
    if (request.recompute == plan::Recompute::Auto &&
        (!limitBinds || request.effort >= 1)) {
      kept = keeping(o, asked, request);
      if (kept && !kept->result.limitBinds)
        return std::move(*kept);
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

  bool limitBinds = false; ///< for one of the strategies at least
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

/// The fastest of the synchronous strategies, on all devices or, where links
/// cost more than devices bring, on half of them, a quarter …: with more of
/// them a plan is never slower.
static Decision decideBest(const CompileOptions &o,
                           const plan::CostGraph &graph,
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

int64_t deviceLimit(const CompileOptions &o, const plan::Topology &topology) {
  plan::PlanRequest request;
  request.topology = topology;
  request.memoryLimit = limitAsked(o, topology);
  return plan::memoryLimitOf(request);
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

Decision decide(const CompileOptions &o, const plan::CostGraph &graph,
                const ModelFacts &facts) {
  if (o.strategy == "auto")
    return decideBest(o, graph, facts);
  Decision d = o.recompute == "auto"
                   ? decideNamedAuto(o, graph, facts)
                   : decideNamed(o, graph, facts, recomputeAsked(o), true);
  if (orderFileOf(o.strategy))
    noteIdleDevices(facts, d);
  return d;
}

plan::Replanned planLikeCompile(CompileOptions asked,
                                const plan::CostGraph &graph,
                                const ModelFacts &facts) {
  try {
    return {decide(asked, graph, facts).result};
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit)
      throw;
    asked.withoutWorkspace = asked.quick = true;
    return {decide(asked, graph, facts).result, true};
  }
}

plan::Replanned planAgain(const CompileOptions &o, const plan::CostGraph &graph,
                          const ModelFacts &facts,
                          const plan::PlanRequest &changed) {
  CompileOptions asked = o;
  asked.microbatches = changed.microbatches;
  asked.memoryLimit = changed.memoryLimit;
  ModelFacts others = facts;
  others.topology = changed.topology;
  if (changed.topology.devices() != facts.topology.devices()) {
    const bool isFree =
        o.stages == "auto" && o.replicas.empty() && o.stageFile.empty();
    asked.stageFile = asked.replicas = "";
    asked.stages = isFree || !changed.stages ? std::string("auto")
                                             : std::to_string(*changed.stages);
  }
  return planLikeCompile(asked, graph, others);
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
