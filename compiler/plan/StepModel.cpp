#include "compiler/plan/StepModel.h"

#include "compiler/plan/Collective.h"
#include "compiler/plan/EqualOrders.h"
#include "compiler/plan/FarStash.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/RankCores.h"
#include "compiler/plan/ReduceOverlap.h"
#include "compiler/plan/ScheduleCosts.h"
#include "compiler/plan/SharedWeights.h"
#include "compiler/plan/intraop/ShardedCost.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/SharedCores.h"
#include "report/Format.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace pipec::plan {

namespace {

/// Steps that are executed to see how fast they follow each other without a
/// barrier; the first ones fill the pipeline.
constexpr int kSteps = 4, kFilling = 2;

bool uniform(const std::vector<StagePlan> &stages) {
  return std::all_of(stages.begin(), stages.end(), [&](const StagePlan &s) {
    return s.replicas == stages.front().replicas;
  });
}

int devicesOf(const std::vector<StagePlan> &stages) {
  int n = 0;
  for (const StagePlan &s : stages)
    n += s.replicas;
  return n;
}

double stageSeconds(const StagePlan &s) {
  return s.forwardSeconds + s.backwardInputSeconds + s.backwardWeightSeconds;
}

/// The share of all devices' time in a step in which they do not compute, each
/// microbatch once a stage: also where replicas outnumber the microbatches.
double idleShare(const std::vector<StagePlan> &stages, int64_t microbatches,
                 double step) {
  std::set<int> devices;
  double busy = 0; // a microbatch
  for (const StagePlan &s : stages) {
    devices.insert(s.devices.begin(), s.devices.end());
    busy += stageSeconds(s);
  }
  const double all = static_cast<double>(devices.size()) * step;
  return all > 0 ? 1 - busy * static_cast<double>(microbatches) / all : 0;
}

} // namespace

std::vector<std::vector<int>> assignDevices(const StrategyFacts &facts,
                                            const std::vector<int> &replicas,
                                            bool inside) {
  int stages = static_cast<int>(replicas.size());
  int chunks = std::max(1, facts.chunks);
  if (facts.order)
    return facts.order->placement;
  if (chunks > 1) {
    // One pipeline's devices as the schedule lays them out, once per replica.
    int columns = std::max(1, stages / chunks);
    const schedule::ScheduleRow *row = schedule::findSchedule(facts.schedule);
    bool zigzag = row && row->layout == schedule::Layout::Zigzag;
    auto one = zigzag ? schedule::zigzagPlacement(columns, chunks)
                      : schedule::loopedPlacement(columns, chunks);
    std::vector<std::vector<int>> devices(stages);
    for (int s = 0; s < stages; ++s)
      for (int q = 0; q < replicas[s]; ++q)
        for (int d : one[s])
          devices[s].push_back(inside ? q * columns + d : d * replicas[s] + q);
    return devices;
  }
  if (facts.copies > 1)
    return schedule::bidirectionalPlacement(stages);
  std::vector<std::vector<int>> devices(stages);
  int next = 0;
  for (int s = 0; s < stages; ++s)
    for (int q = 0; q < replicas[s]; ++q)
      devices[s].push_back(inside ? q * stages + s : next++);
  return devices;
}

StepModel::StepModel(const PlanRequest &request, const IntervalCosts &costs)
    : asked(request), costs(costs), memoryLimit(memoryLimitOf(request)),
      updatePerByte(updateSecondsPerByte(request)) {
  for (const CostWeight &weight : request.graph.weights)
    if (weight.trainable && weight.users.size() > 1)
      copied.push_back(&weight);
}

double updateSecondsPerByte(const PlanRequest &request) {
  if (request.graph.updateSecondsPerByte > 0)
    return request.graph.updateSecondsPerByte;
  // Read weight, gradient and state; write weight, its copy and state.
  return (3 + request.graph.roundedShare +
          2 * request.optimizerBytesPerParameterByte) /
         (0.8 * request.topology.device.memoryBandwidth);
}

double StepModel::updateSeconds(int64_t parameterBytes) const {
  return asked.topology.device.stepSeconds +
         updatePerByte * static_cast<double>(parameterBytes);
}

/// Whether the stage is on the device that learns the gradients' norm first.
static bool onLastDevice(const StrategyFacts &facts,
                         const StagePosition &position) {
  size_t stage = static_cast<size_t>(position.stage);
  if (facts.order)
    return facts.order->placement[stage][0] + 1 == facts.order->devices();
  std::vector<int> one(static_cast<size_t>(position.stages), 1);
  return assignDevices(facts, one, false)[stage][0] + 1 ==
         position.stages / std::max(1, facts.chunks);
}

Keeps keepsAt(const PlanRequest &request, const StagePosition &position) {
  const auto &spareSlots = request.strategy.spareSlots;
  const schedule::Sends sends{{}, {}, request.recompute != Recompute::Full};
  return keepsAt(request, position,
                 spareSlots ? spareSlots(position, sends) : 0);
}

Keeps keepsAt(const PlanRequest &request, const StagePosition &position,
              int spareSlots) {
  const StrategyFacts &facts = request.strategy;
  Keeps keeps{facts.inFlight(position), facts.versions(position),
              !facts.barrier && request.clips &&
                  !onLastDevice(facts, position)};
  const int between = facts.betweenHalves ? facts.betweenHalves(position) : 1;
  const int share =
      (position.microbatches + position.replicas - 1) / position.replicas;
  const int most = facts.synchronous ? share : std::numeric_limits<int>::max();
  // One more where messages come, so that the next finds room, or as many more
  // as the order needs.
  const bool isFirst = position.stage == 0,
             isLast = position.stage + 1 == position.stages;
  keeps.betweenHalves = std::min(most, between);
  keeps.received = std::min(most, keeps.inFlight + !isFirst + spareSlots);
  keeps.receivedBack = std::min(most, between + !isLast + spareSlots);
  keeps.sent = std::min(most, 2);
  keeps.holders = facts.order ? facts.order->replicas(position.stage)
                              : position.replicas * std::max(1, facts.copies);
  return keeps;
}

/// Of a microbatch between its two backward tasks. Who sends no gradient has
/// all of it in one.
static int64_t handoverBytes(const StrategyFacts &facts,
                             const StageCost &cost) {
  return facts.splitBackward && cost.receiveGradientBytes > 0
             ? cost.handoverBytes
             : 0;
}

MemoryParts StepModel::memory(const StageCost &cost, const Keeps &keeps,
                              bool recompute) const {
  MemoryParts m;
  m.weights = cost.weightBytes() * keeps.versions;
  m.state = cost.stateBytes;
  m.gradients = static_cast<int64_t>(
      asked.strategy.gradientCopies *
      static_cast<double>(cost.parameterBytes + cost.useBytes));
  m.optimizer = static_cast<int64_t>(asked.optimizerBytesPerParameterByte *
                                     static_cast<double>(cost.parameterBytes));
  m.stash = recompute ? 0 : cost.stashBytes * keeps.inFlight;
  m.handover = handoverBytes(asked.strategy, cost) * keeps.betweenHalves;
  m.messages = (cost.receiveBytes + cost.inputBytes) * keeps.received +
               cost.sendGradientBytes * keeps.receivedBack +
               (cost.sendBytes + cost.receiveGradientBytes) * keeps.sent;
  m.sums = ByteRates::sums(m.gradients, keeps.holders,
                           reducedAtOnce(asked.topology.device));
  // When the forward runs again, with one microbatch's activations.
  m.workspace = recompute ? cost.againBytes : cost.workspaceBytes;
  m.undo = keeps.undo ? cost.weightBytes() + m.optimizer : 0;
  return m;
}

ByteRates StepModel::byteRates(const StageCost &cost) const {
  const MemoryParts none = memory(cost, {0, 0, false, 0, 0, 0, 0, 1}, false);
  ByteRates rates;
  const int64_t stages = asked.strategy.chunks * asked.strategy.copies;
  rates.fixed = none.total() - none.workspace + none.workspace / stages;
  rates.perVersion = cost.weightBytes();
  rates.perFlight = cost.stashBytes;
  rates.again = (cost.againBytes - cost.workspaceBytes) / stages;
  rates.undo = cost.weightBytes() + none.optimizer;
  rates.perReceived = cost.receiveBytes + cost.inputBytes;
  rates.perReceivedBack = cost.sendGradientBytes;
  rates.perHalf = handoverBytes(asked.strategy, cost);
  rates.perSent = cost.sendBytes + cost.receiveGradientBytes;
  rates.leaves = cost.sendBytes;
  rates.gradients = none.gradients;
  rates.piece = reducedAtOnce(asked.topology.device);
  rates.stages = static_cast<int>(stages);
  return rates;
}

StageCost StepModel::costOf(const Split &split, size_t s) const {
  const size_t first = split.starts[s], last = s + 1 < split.starts.size()
                                                   ? split.starts[s + 1] - 1
                                                   : costs.nodes() - 1;
  const StageCost &whole = costs.cost(first, last);
  if (split.shardings.empty() || !split.shardings[s].isSharded())
    return whole;
  const StageSharding &sharding = split.shardings[s];
  return shardedCost(asked.graph, whole, first, last, sharding,
                     groupOf(asked, sharding.degree, split.replicas[s]));
}

const std::vector<std::vector<int>> &
StepModel::assignedDevices(const Split &split) const {
  if (!split.devices.empty())
    return split.devices;
  if (!assigned || assigned->replicas != split.replicas ||
      assigned->inside != split.pipelinesInside)
    assigned.emplace(Assigned{
        split.replicas, split.pipelinesInside,
        assignDevices(asked.strategy, split.replicas, split.pipelinesInside)});
  return assigned->devices;
}

std::vector<StagePlan> StepModel::layOut(const Split &split) const {
  size_t count = split.starts.size();
  const std::vector<std::vector<int>> &devices = assignedDevices(split);
  std::vector<StagePlan> stages(count);
  for (size_t s = count; s-- > 0;) {
    StagePlan &stage = stages[s];
    stage.firstNode = split.starts[s];
    stage.lastNode =
        s + 1 < count ? split.starts[s + 1] - 1 : costs.nodes() - 1;
    stage.replicas = split.replicas[s];
    stage.devices = devices[s];
    stage.recompute = !split.recompute.empty() && split.recompute[s];
    if (!split.shardings.empty())
      stage.sharding = split.shardings[s];
    const StageCost cost = costOf(split, s);
    stage.forwardSeconds = cost.forwardSeconds;
    stage.backwardInputSeconds =
        cost.backwardInputSeconds + (stage.recompute ? cost.forwardSeconds : 0);
    stage.backwardWeightSeconds = cost.backwardWeightSeconds;
    stage.parameterBytes = cost.parameterBytes;
    stage.receiveBytes = cost.receiveBytes;
    stage.receiveGradientBytes = cost.receiveGradientBytes;
    stage.allReduceSeconds =
        allReduceSeconds(asked.topology, stage.devices, cost.parameterBytes);
  }
  addMemory(split, stages);
  addFarStash(asked.topology, stages);
  return stages;
}

int64_t StepModel::effort(const std::vector<int> &replicas) const {
  bool same = std::adjacent_find(replicas.begin(), replicas.end(),
                                 std::not_equal_to<>()) == replicas.end();
  int64_t stages = static_cast<int64_t>(replicas.size());
  int64_t microbatches = asked.microbatches;
  // Laying out a split walks over every node.
  int64_t layout = static_cast<int64_t>(costs.nodes() / 4) + 1;
  if (!asked.strategy.synchronous)
    return layout;
  if (same)
    microbatches = (microbatches + replicas[0] - 1) / replicas[0];
  int64_t steps = asked.strategy.barrier ? 1 : kSteps;
  return steps * stages * microbatches * 2 + layout;
}

namespace {

schedule::Schedule makeSchedule(const StrategyFacts &facts,
                                const std::vector<StagePlan> &stages,
                                int microbatches) {
  schedule::ScheduleRequest request;
  int chunks = std::max(1, facts.chunks);
  request.chunks = chunks > 1 ? chunks : 0;
  request.slices = facts.slices;
  if (uniform(stages)) {
    // Equal replicas are independent pipelines that share the microbatches.
    int replicas = stages.front().replicas;
    request.microbatches = (microbatches + replicas - 1) / replicas;
    request.devices = static_cast<int>(stages.size()) / chunks;
  } else {
    request.microbatches = microbatches;
    for (const StagePlan &s : stages)
      request.replicas.push_back(s.replicas);
    request.devices = devicesOf(stages);
  }
  return equalOrder(facts.schedule, request);
}

} // namespace

/// Which devices of the order take turns on which cores.
static schedule::CoreSharing coreSharing(const RankCores &cores,
                                         const schedule::Schedule &order,
                                         const std::vector<StagePlan> &stages) {
  schedule::CoreSharing sharing;
  if (!cores.isScarce())
    return sharing;
  sharing.cores = cores.cores;
  for (int d = 0; d < order.devices(); ++d) {
    const std::vector<int> held = order.stagesOf(d);
    const std::vector<int> &real =
        stages[held.empty() ? 0 : held.front()].devices;
    // The order has every device, or one pipeline of several equal ones.
    const bool all =
        !held.empty() && order.placement[held.front()].size() == real.size();
    std::map<int, int> count;
    if (held.empty() || all)
      ++count[cores.group.at(real[all ? order.replicaOn(held.front(), d) : 0])];
    else
      for (int device : real)
        ++count[cores.group.at(device)];
    sharing.shares.emplace_back();
    for (const auto &[group, devices] : count)
      sharing.shares.back().push_back({group, devices});
  }
  return sharing;
}

const StepModel::Placed &
StepModel::placedOn(const std::vector<StagePlan> &stages) const {
  if (placed &&
      std::ranges::equal(stages, placed->devices, {}, &StagePlan::devices) &&
      std::ranges::equal(stages, placed->replicas, {}, &StagePlan::replicas))
    return *placed;
  Placed now;
  for (const StagePlan &stage : stages) {
    now.devices.push_back(stage.devices);
    now.replicas.push_back(stage.replicas);
  }
  if (asked.strategy.order)
    now.order = asked.strategy.order;
  else if (placed && placed->replicas == now.replicas)
    now.order = placed->order;
  else
    now.order = std::make_shared<const schedule::Schedule>(
        makeSchedule(asked.strategy, stages, asked.microbatches));
  for (int d = 0; d < now.order->devices(); ++d)
    now.held.push_back(now.order->stagesOf(d));
  now.ahead = schedule::forwardsAhead(*now.order);
  const RankCores cores = rankCores(asked.topology, stages);
  now.ranksPerCore = cores.ranksPerCore;
  now.sharing = coreSharing(cores, *now.order, stages);
  now.isScarce = now.sharing.scarce();
  return placed.emplace(std::move(now));
}

namespace {

/// The longest that a few bytes take between devices that are neighbours.
double hopLatency(const Topology &topology,
                  const std::vector<StagePlan> &stages) {
  double worst = 0;
  for (size_t s = 1; s < stages.size(); ++s) {
    int from = stages[s - 1].devices[0], to = stages[s].devices[0];
    if (from != to)
      worst = std::max(worst, topology.link(from, to).latency);
  }
  return worst;
}

/// When all devices have done each of `count` steps, `after` their last actions
/// included. A device updates once those before it have handed on the norm.
/// `line` is that of the first one, and then of the last.
std::vector<double> finishes(const schedule::Schedule &order,
                             const schedule::Costs &costs,
                             const std::vector<double> &after, int count,
                             const std::vector<int> &ahead, double latency,
                             schedule::Timeline &line) {
  std::vector<double> result;
  schedule::Handover handover{std::vector<double>(after.size(), 0), ahead,
                              latency};
  schedule::SimulateOptions options;
  while (static_cast<int>(result.size()) < count) {
    if (!result.empty())
      line = schedule::simulate(order, costs, options);
    double norm = 0, last = 0;
    for (size_t d = 0; d < after.size(); ++d) {
      double end =
          line.end[d].empty() ? handover.release[d] : line.end[d].back();
      norm = count > 1 ? std::max(end, d ? norm + latency : 0) : end;
      handover.release[d] = norm + after[d];
      last = std::max(last, handover.release[d]);
    }
    result.push_back(last);
    options.after = &handover;
  }
  return result;
}

} // namespace

/// Steps that overlap on shared cores fall into no rhythm at once: no cores do
/// a step's work in less than it takes.
static double leastShared(const schedule::Schedule &order,
                          const schedule::Costs &costs,
                          const schedule::CoreSharing &sharing,
                          const std::vector<double> &after) {
  std::map<int, double> onCores;
  double most = 0;
  for (int d = 0; d < order.devices(); ++d) {
    double work = after[static_cast<size_t>(d)];
    for (const schedule::Action &a : order.order[static_cast<size_t>(d)])
      work += costs.time(a.kind, a.stage, d);
    for (const auto &share : sharing.shares[static_cast<size_t>(d)]) {
      double &sum = onCores[share.group];
      sum += work * share.devices;
      most = std::max(most, sum / sharing.cores.at(share.group));
    }
  }
  return most;
}

double StepModel::synchronousStep(const std::vector<StagePlan> &stages) const {
  const Placed &on = placedOn(stages);
  const schedule::Schedule &order = *on.order;
  const schedule::Costs priced =
      scheduleCosts(asked.topology, stages, order.slices, on.ranksPerCore);
  // A device updates once its last backward is done and gradients are summed.
  schedule::Timeline line;
  if (!on.isScarce)
    line = schedule::simulate(order, priced, {});
  const bool overlaps = overlapsReduction(asked.topology);
  std::vector<double> after = overlaps
                                  ? exposedReduction(order, line, stages)
                                  : std::vector<double>(order.devices(), 0);
  for (int d = 0; d < order.devices(); ++d)
    for (int s : on.held[d])
      after[d] += (overlaps ? 0 : stages[s].allReduceSeconds) +
                  updateSeconds(stages[s].parameterBytes);
  const int count = asked.strategy.barrier ? 1 : kSteps;
  const double latency = hopLatency(asked.topology, stages);
  std::vector<double> finish;
  if (on.isScarce) {
    finish = schedule::simulateShared(order, priced, on.sharing, after,
                                      {count, on.ahead, latency})
                 .finish;
  } else {
    finish = finishes(order, priced, after, count, on.ahead, latency, line);
  }
  if (count == 1)
    return finish[0];
  const double step =
      (finish[kSteps - 1] - finish[kFilling - 1]) / (kSteps - kFilling);
  return on.isScarce
             ? std::max(step, leastShared(order, priced, on.sharing, after))
             : step;
}

/// Time per microbatch of a pipeline that never drains: no device and no link
/// is faster than its work, and no stage's window of in-flight microbatches
/// turns over faster than one microbatch's way through it and back.
double StepModel::steadyPeriod(const std::vector<StagePlan> &stages) const {
  double period = 0, roundTrip = 0;
  const RankCores cores = rankCores(asked.topology, stages);
  std::map<int, double> onCores; ///< work of a microbatch, by group
  const double slower = asked.topology.device.stretchFactor;
  for (size_t s = stages.size(); s-- > 0;) {
    const StagePlan &stage = stages[s];
    double load =
        slower * stageSeconds(stage) + stage.allReduceSeconds +
        updateSeconds(stage.parameterBytes) +
        receiveSeconds(asked.topology, stages, s, false, cores.ranksPerCore) +
        receiveSeconds(asked.topology, stages, s, true, cores.ranksPerCore);
    roundTrip += load;
    if (cores.isScarce())
      for (int device : stage.devices)
        onCores[cores.group.at(device)] += load / stage.replicas;
    double window = static_cast<double>(stage.replicas) * stage.inFlight;
    period = std::max({period, load / stage.replicas, roundTrip / window});
    if (s > 0) {
      Link link =
          boundaryLink(asked.topology, stages[s - 1].devices, stage.devices);
      double hop = hopSeconds(asked.topology, stages, s, link,
                              stage.receiveBytes, cores.ranksPerCore);
      double back = hopSeconds(asked.topology, stages, s, link,
                               stage.receiveGradientBytes, cores.ranksPerCore);
      roundTrip += hop + back;
      int lanes = std::min(stage.replicas, stages[s - 1].replicas);
      period = std::max(period, std::max(hop, back) / lanes);
    }
  }
  for (auto &[group, work] : onCores)
    period = std::max(period, work / cores.cores.at(group));
  return period;
}

double StepModel::simulateStep(const std::vector<StagePlan> &stages) const {
  return asked.strategy.synchronous ? synchronousStep(stages)
                                    : steadyPeriod(stages) * asked.microbatches;
}

int64_t StepModel::peakOf(const Split &split) const {
  return peakBytes(layOut(split));
}

double StepModel::stepSeconds(const Split &split) const {
  std::vector<StagePlan> stages = layOut(split);
  const bool fits = peakBytes(stages) <= memoryLimit;
  hasBound |= !fits;
  if (!fits || unequalCopies(asked, split.starts, split.replicas))
    return std::numeric_limits<double>::infinity();
  ++simulated;
  return simulateStep(stages);
}

namespace {

/// Devices that have the stage's weights: its replicas, or the copies of a
/// pipeline that goes both ways.
int holders(const PlanRequest &request, const std::vector<StagePlan> &stages,
            const StagePlan &stage) {
  const auto number = static_cast<size_t>(&stage - stages.data());
  if (request.strategy.order)
    return static_cast<int>(
        request.strategy.order->placement.at(number).size());
  return stage.replicas * std::max(1, request.strategy.copies);
}

/// Bytes all links together carry in a step.
int64_t communicationBytes(const PlanRequest &request,
                           const std::vector<StagePlan> &stages) {
  double bytes = 0;
  for (const StagePlan &s : stages) {
    bytes += static_cast<double>(request.microbatches) *
             static_cast<double>(s.receiveBytes + s.receiveGradientBytes);
    // A ring moves 2(r-1) times the gradients; without a barrier once per r
    // microbatches.
    double rings = request.strategy.synchronous
                       ? 1.0
                       : static_cast<double>(request.microbatches) / s.replicas;
    bytes += rings * 2.0 * (holders(request, stages, s) - 1) *
             static_cast<double>(s.parameterBytes);
  }
  // Copies of a weight in several stages sum their gradients.
  for (const CostWeight &weight : request.graph.weights) {
    if (!weight.trainable)
      continue;
    int copies = 0;
    for (const StagePlan &s : stages)
      copies += std::any_of(weight.users.begin(), weight.users.end(),
                            [&](size_t user) {
                              return user >= s.firstNode && user <= s.lastNode;
                            });
    if (copies > 1)
      bytes += 2.0 * (copies - 1) * static_cast<double>(weight.bytes);
  }
  return static_cast<int64_t>(bytes);
}

} // namespace

void StepModel::explain(PlanResult &result) const {
  const auto time = [step = result.stepSeconds](double seconds) {
    return report::seconds(seconds, step);
  };
  // Replicas, and copies that only the order knows.
  const auto copies = [](const StagePlan &stage) {
    return static_cast<double>(stage.devices.size());
  };
  const double sharers = rankCores(asked.topology, result.stages).ranksPerCore;
  double worst = -1;
  bool link = false;
  for (size_t s = 0; s < result.stages.size(); ++s) {
    const StagePlan &stage = result.stages[s];
    double load = stageSeconds(stage) / copies(stage);
    if (load > worst)
      worst = load, result.bottleneckStage = static_cast<int>(s), link = false;
    if (s == 0)
      continue;
    const auto message = [&](bool backward) {
      return messageSeconds(asked.topology, result.stages, s, backward,
                            sharers);
    };
    double hop = std::max(message(false), message(true)) /
                 std::min(copies(stage), copies(result.stages[s - 1]));
    if (hop > worst)
      worst = hop, result.bottleneckStage = static_cast<int>(s), link = true;
  }
  int s = result.bottleneckStage;
  if (link)
    result.bottleneck = "the link from stage " + std::to_string(s - 1) +
                        " to stage " + std::to_string(s) + ": " + time(worst) +
                        " a microbatch";
  else
    result.bottleneck = "compute of stage " + std::to_string(s) + ": " +
                        time(worst) + " a microbatch";
  double reduce = 0;
  int reducing = 0;
  for (size_t t = 0; t < result.stages.size(); ++t)
    if (result.stages[t].allReduceSeconds > reduce)
      reduce = result.stages[t].allReduceSeconds,
      reducing = static_cast<int>(t);
  double per = asked.strategy.synchronous
                   ? static_cast<double>(asked.microbatches)
                   : 1.0;
  if (reduce > worst * per) {
    result.bottleneckStage = reducing;
    result.bottleneck = "the gradient all-reduce of stage " +
                        std::to_string(reducing) + ": " + time(reduce) +
                        " a step";
  }
}

PlanResult StepModel::price(const Split &split) const {
  PlanResult result;
  result.stages = layOut(split);
  result.stepSeconds = simulateStep(result.stages);
  result.bubble =
      idleShare(result.stages, asked.microbatches, result.stepSeconds);
  double samples =
      static_cast<double>(asked.microbatches) * asked.microbatchSize;
  result.samplesPerSecond =
      result.stepSeconds > 0 ? samples / result.stepSeconds : 0;
  result.communicationBytes = communicationBytes(asked, result.stages);
  explain(result);
  return result;
}

} // namespace pipec::plan
