#include "compiler/plan/StepVerifier.h"

#include "compiler/plan/EqualOrders.h"
#include "compiler/plan/Expect.h"
#include "compiler/schedule/Generator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>

namespace pipec::plan {

namespace {

constexpr int64_t kMostActions = 5'000'000;

double workOf(const StagePlan &stage) {
  return stage.forwardSeconds + stage.backwardInputSeconds +
         stage.backwardWeightSeconds;
}

double updateOf(const PlanRequest &request, const StagePlan &stage) {
  const auto bytes = static_cast<double>(stage.parameterBytes);
  const double end = request.topology.device.stepSeconds;
  if (request.graph.updateSecondsPerByte > 0)
    return end + request.graph.updateSecondsPerByte * bytes;
  const double moved = 3 + 2 * request.optimizerBytesPerParameterByte +
                       request.graph.roundedShare;
  return end + bytes * moved / (0.8 * request.topology.device.memoryBandwidth);
}

/// A ring's steps each wait for the narrowest and for the latest of its links.
Link linkOfRing(const Topology &topology, const std::vector<int> &devices) {
  Link of = topology.link(devices.back(), devices.front());
  for (size_t i = 1; i < devices.size(); ++i) {
    const Link next = topology.link(devices[i - 1], devices[i]);
    of.bandwidth = std::min(of.bandwidth, next.bandwidth);
    of.latency = std::max(of.latency, next.latency);
  }
  return of;
}

/// The better of a ring over all replicas and, where servers hold equally many,
/// a ring in each server and one across of a share each.
double reduceOf(const Topology &topology, const StagePlan &stage) {
  const std::vector<int> &devices = stage.devices;
  const auto bytes = static_cast<double>(stage.parameterBytes);
  const auto n = static_cast<double>(devices.size());
  if (n < 2 || bytes == 0)
    return 0;
  auto ring = [](const Link &link, double members, double each) {
    return 2 * (members - 1) * (link.latency + each / members / link.bandwidth);
  };
  const double flat = ring(linkOfRing(topology, devices), n, bytes);
  std::map<int, int> held;
  std::vector<int> first;
  for (int d : devices)
    if (++held[d / topology.levels.back().count] == 1)
      first.push_back(d);
  const int inner = held.begin()->second;
  for (auto [server, count] : held)
    if (count != inner)
      return flat;
  const Link across = linkOfRing(topology, first);
  if (inner < 2 || held.size() < 2)
    return flat;
  const Level &near = topology.levels.back();
  return std::min(
      flat, ring({near.bandwidth, near.latency, 0}, inner, bytes) +
                ring(across, static_cast<double>(held.size()), bytes / inner));
}

/// Replicas of neighbouring stages meet in turn; the outermost link that any
/// pair uses counts for all.
Link linkInto(const Topology &topology, const PlanResult &result, size_t s) {
  const std::vector<int> &from = result.stages[s - 1].devices;
  const std::vector<int> &to = result.stages[s].devices;
  Link worst = topology.link(from[0], to[0]);
  const size_t period = std::lcm(from.size(), to.size());
  for (size_t k = 1; k < period && worst.level > 0; ++k) {
    Link link = topology.link(from[k % from.size()], to[k % to.size()]);
    if (link.level < worst.level)
      worst = link;
  }
  return worst;
}

/// Ranks on the fullest server, of all that the plan uses.
int ranksOnAServer(const PlanRequest &request, const PlanResult &result);

bool outnumber(const PlanRequest &request, const PlanResult &result) {
  const int cores = request.topology.cores;
  return cores > 0 && ranksOnAServer(request, result) > cores;
}

/// On CPUs that were timed the receiver copies what it takes. It looks for it
/// as long as 1 ms without a sleep, beside others where they share its core.
double hopOf(const PlanRequest &request, const PlanResult &result, size_t s,
             const Link &link, int64_t bytes) {
  if (bytes == 0)
    return 0;
  const DeviceModel &device = request.topology.device;
  if (device.ringSeconds <= 0)
    return link.latency + static_cast<double>(bytes) / link.bandwidth;
  const bool crowded = outnumber(request, result);
  double task = 0;
  for (size_t side = 0; side < result.stages.size(); ++side) {
    const StagePlan &stage = result.stages[side];
    if (crowded || side + 1 == s || side == s)
      task =
          std::max({task, stage.forwardSeconds,
                    stage.backwardInputSeconds + stage.backwardWeightSeconds});
  }
  if (crowded)
    task *= static_cast<double>(ranksOnAServer(request, result)) /
            request.topology.cores;
  const double slept = std::max(task, 1e-3) - 1e-3;
  const double woken =
      std::min(device.ringSeconds, slept + device.crowdSeenSeconds);
  if (link.level < static_cast<int>(request.topology.levels.size()) - 1)
    return link.latency + (crowded ? woken : 0);
  return crowded ? woken : std::min(link.latency, slept + device.seenSeconds);
}

/// What lies between two tasks of a rank.
double turnOf(const PlanRequest &request, const PlanResult &result) {
  const DeviceModel &device = request.topology.device;
  return device.turnSeconds +
         (outnumber(request, result) ? device.crowdTurnSeconds : 0);
}

/// What a stage does for a message of stage `from` before its task, `turn`
/// included.
double takingOf(const PlanRequest &request, const PlanResult &result, int stage,
                int from, double turn) {
  if (from < 0 || from >= static_cast<int>(result.stages.size()))
    return turn;
  const StagePlan &mine = result.stages[static_cast<size_t>(stage)],
                  &other = result.stages[static_cast<size_t>(from)];
  const int64_t bytes =
      from < stage ? mine.receiveBytes : other.receiveGradientBytes;
  if (mine.devices == other.devices || bytes == 0 ||
      request.topology.device.ringSeconds <= 0)
    return turn;
  if (bytes <= 4096)
    return turn + request.topology.device.noteSeconds;
  const Link link = linkInto(request.topology, result,
                             static_cast<size_t>(std::max(stage, from)));
  return turn + request.topology.device.takeSeconds +
         static_cast<double>(bytes) / link.bandwidth;
}

/// Longest paths through list order and data dependencies: walks along a
/// device's list as far as data allows, then along those that wait for it.
class Paths {
public:
  Paths(const schedule::Schedule &order, const PlanRequest &request,
        const PlanResult &result)
      : order(order), request(request), result(result),
        devices(order.order.size()), after(devices, 0), backward(devices),
        hops(result.stages.size() + 1, 0),
        ahead(schedule::forwardsAhead(order)) {
    slower = request.topology.device.stretchFactor;
    turn = turnOf(request, result);
    for (size_t s = 1; s < result.stages.size(); ++s) {
      const Link link = linkInto(request.topology, result, s);
      hops[s] = hopOf(request, result, s, link,
                      std::max(result.stages[s].receiveBytes,
                               result.stages[s].receiveGradientBytes) /
                          order.slices);
      if (result.stages[s - 1].devices[0] != result.stages[s].devices[0])
        latency = std::max(latency, link.latency);
    }
    for (size_t d = 0; d < devices; ++d)
      after[d] = afterwards(d);
  }

  /// When all have ended and updated, of a step by itself.
  double alone() { return run(std::vector<double>(devices, 0), false); }

  /// The time from step to step without a barrier.
  double following() {
    std::vector<double> finish{alone()};
    while (finish.size() < 4)
      finish.push_back(run(released, true));
    return (finish[3] - finish[1]) / 2;
  }

  double latency = 0; ///< the longest between neighbours
  double slower = 1;  ///< tasks, as they would be alone
  double turn = 0;    ///< between two tasks

private:
  /// Of a stage's last backward: when its gradients begin to be complete, and
  /// when all are.
  struct Ending {
    double begin = 0, end = 0;
  };

  double &at(std::vector<double> &list, int stage, int microbatch) {
    return list[static_cast<size_t>(stage) * order.microbatches + microbatch];
  }

  /// A step that each device begins when it is released. `follows`: behind
  /// another one, whose verdict goes from the last device to the first.
  double run(const std::vector<double> &release, bool follows) {
    forwards.assign(static_cast<size_t>(order.stages) * order.microbatches, -1);
    backwards = forwards;
    clock = release;
    next.assign(devices, 0);
    verdict.assign(devices, 0);
    settled.assign(devices, !follows);
    for (size_t d = devices; d-- > 0;)
      waiting.push_back(d);
    while (!waiting.empty()) {
      const size_t d = waiting.back();
      waiting.pop_back();
      walk(d);
    }
    return update();
  }

  /// As far as it goes.
  void walk(size_t d) {
    for (; next[d] < order.order[d].size(); ++next[d]) {
      const bool asks = static_cast<int>(next[d]) == ahead[d] && !settled[d];
      if ((asks && !settle(d)) || !advance(d, order.order[d][next[d]]))
        return;
    }
  }

  /// The verdict on the step before arrives from the devices behind.
  bool settle(size_t d) {
    if (d + 1 < devices) {
      if (!settled[d + 1])
        return false;
      clock[d] = std::max(clock[d], verdict[d + 1] + latency);
    }
    verdict[d] = clock[d];
    if (d > 0)
      waiting.push_back(d - 1);
    return settled[d] = true;
  }

  /// Runs one action; false while its input is missing.
  bool advance(size_t d, const schedule::Action &a) {
    const StagePlan &stage = result.stages[static_cast<size_t>(a.stage)];
    const bool forward = a.kind == schedule::Kind::F;
    const int from = forward ? a.stage - 1 : a.stage + 1;
    double ready = 0;
    if (a.kind != schedule::Kind::W && from >= 0 && from < order.stages) {
      ready = at(forward ? forwards : backwards, from, a.microbatch);
      if (ready < 0)
        return false;
      if (order.deviceOf(from, a.microbatch) != static_cast<int>(d))
        ready += hops[static_cast<size_t>(std::max(a.stage, from))];
    }
    double seconds = forward ? stage.forwardSeconds : 0, taken = 0;
    if (a.kind != schedule::Kind::W)
      taken = takingOf(request, result, a.stage, from, turn);
    if (a.kind == schedule::Kind::B || a.kind == schedule::Kind::I)
      seconds += stage.backwardInputSeconds;
    if (a.kind == schedule::Kind::B || a.kind == schedule::Kind::W)
      seconds += stage.backwardWeightSeconds;
    const double start = std::max(clock[d], ready);
    clock[d] = start + taken + slower * seconds / order.slices;
    if (!forward) {
      const bool keepsAll = a.stage == 0 || a.kind == schedule::Kind::W;
      lastBackward(d, a.stage) = {keepsAll ? start : clock[d], clock[d]};
    }
    if (a.kind == schedule::Kind::W)
      return true;
    at(forward ? forwards : backwards, a.stage, a.microbatch) = clock[d];
    const int to = forward ? a.stage + 1 : a.stage - 1;
    if (to >= 0 && to < order.stages)
      if (const auto e = static_cast<size_t>(order.deviceOf(to, a.microbatch));
          e != d && isNextOf(e, to, a.microbatch))
        waiting.push_back(e);
    return true;
  }

  /// Whether the device is at a task of the stage and microbatch.
  bool isNextOf(size_t d, int stage, int microbatch) const {
    if (next[d] == order.order[d].size())
      return false;
    const schedule::Action &a = order.order[d][next[d]];
    return a.stage == stage && a.microbatch == microbatch;
  }

  /// Of the few stages of a device.
  Ending &lastBackward(size_t d, int stage) {
    for (auto &[known, ending] : backward[d])
      if (known == stage)
        return ending;
    return backward[d].emplace_back(stage, Ending()).second;
  }

  /// Ends the step; without a barrier a device waits for the norm of those
  /// before it.
  double update() {
    double end = 0, norm = 0;
    if (summed.empty())
      summed = summing();
    released.assign(devices, 0);
    for (size_t d = 0; d < devices; ++d) {
      expect(next[d] == order.order[d].size(),
             "the schedule stops before its end");
      norm = request.strategy.barrier || d == 0
                 ? clock[d]
                 : std::max(clock[d], norm + latency);
      released[d] = norm + summed[d] + after[d];
      end = std::max(end, released[d]);
    }
    return end;
  }

  bool onCores() const {
    return request.topology.device.kind == "cpu" || request.topology.cores > 0;
  }

  /// Updates of what a device holds, also of a copy of the weights that no
  /// microbatch came to; on processors the all-reduces before them.
  double afterwards(size_t d) const {
    double seconds = 0;
    for (size_t s = 0; s < order.placement.size(); ++s)
      if (std::ranges::count(order.placement[s], static_cast<int>(d))) {
        const StagePlan &stage = result.stages[s];
        seconds += updateOf(request, stage);
        if (onCores())
          seconds += stage.allReduceSeconds;
      }
    return seconds;
  }

  /// What GPUs sum after their last action: a stage after the other, by the end
  /// of its last backward; within it what no message has to wait for, but an
  /// eighth of the gradients, or less.
  std::vector<double> summing() const {
    std::vector<double> until(clock);
    if (onCores())
      return std::vector<double>(devices, 0);
    std::map<std::pair<double, size_t>, double> begins; // by end and stage
    for (size_t s = 0; s < result.stages.size(); ++s) {
      double begin = 0, end = 0;
      for (int d : order.placement[s])
        for (const auto &[stage, ending] : backward[d])
          if (stage == static_cast<int>(s)) {
            begin = std::max(begin, ending.begin);
            end = std::max(end, ending.end);
          }
      if (result.stages[s].allReduceSeconds > 0)
        begins[{end, s}] = begin;
    }
    std::vector<double> link(devices, 0);
    for (auto [key, begin] : begins) {
      const StagePlan &stage = result.stages[key.second];
      const auto bytes = static_cast<double>(stage.parameterBytes);
      const double bucket = std::min(
          bytes, std::clamp(std::ceil(std::floor(bytes / 8) / 64) * 64,
                            stage.replicas * 0x1p18, stage.replicas * 0x1p24));
      double free = begin;
      for (int d : order.placement[key.second])
        free = std::max(free, link[d]);
      for (int d : order.placement[key.second])
        link[d] = std::max(free + stage.allReduceSeconds,
                           key.first + stage.allReduceSeconds * bucket / bytes);
    }
    for (size_t d = 0; d < devices; ++d)
      until[d] = std::max(0.0, link[d] - clock[d]);
    return until;
  }

  const schedule::Schedule &order;
  const PlanRequest &request;
  const PlanResult &result;
  const size_t devices;
  std::vector<double> after;  ///< what each device does after its last action
  std::vector<double> summed; ///< and before that
  std::vector<std::vector<std::pair<int, Ending>>> backward; ///< by device
  std::vector<double> hops; ///< into a stage from the one before, either way
  const std::vector<int> ahead; ///< forwards before another step's verdict
  std::vector<double> forwards, backwards;      ///< when they end; -1: not yet
  std::vector<double> clock, released, verdict; ///< by device
  std::vector<size_t> next;
  std::vector<char> settled;
  std::vector<size_t> waiting; ///< devices that may be able to go on
};

/// Ranks on the fullest server, of all that the plan uses.
int ranksOnAServer(const PlanRequest &request, const PlanResult &result) {
  std::map<int, std::set<int>> onServer;
  size_t most = 1;
  for (const StagePlan &stage : result.stages)
    for (int device : stage.devices) {
      auto &there = onServer[request.topology.server(device)];
      there.insert(device);
      most = std::max(most, there.size());
    }
  return static_cast<int>(most);
}

/// What a device shares with others of its server, by a number, and its cores:
/// a core, where the server's ranks are a multiple of them, or all of them.
std::pair<int, int> coresOf(const PlanRequest &request,
                            const PlanResult &result, int device) {
  const Topology &topology = request.topology;
  std::set<int> there;
  for (const StagePlan &stage : result.stages)
    for (int other : stage.devices)
      if (topology.server(other) == topology.server(device))
        there.insert(other);
  const auto ranks = static_cast<int>(there.size());
  if (ranks <= topology.cores)
    return {device, 1};
  const int first = topology.server(device) * topology.serverSize();
  if (ranks % topology.cores != 0)
    return {first, topology.cores};
  return {first + (device - first) % topology.cores, 1};
}

/// All ranks of the plan.
int ranksOf(const PlanResult &result) {
  std::set<int> ranks;
  for (const StagePlan &stage : result.stages)
    ranks.insert(stage.devices.begin(), stage.devices.end());
  return static_cast<int>(ranks.size());
}

/// What no step is faster than: all cores have an equal share of the work.
double leastOnCores(const PlanRequest &request, const PlanResult &result) {
  double work = 0;
  std::set<int> servers;
  for (const StagePlan &stage : result.stages) {
    work += request.topology.device.stretchFactor * workOf(stage) *
            request.microbatches;
    for (int device : stage.devices)
      servers.insert(request.topology.server(device));
  }
  return work / static_cast<double>(servers.size()) / request.topology.cores;
}

/// The step of `order` is its longest path. Ranks that share cores take turns:
/// no task is faster than that, and what it waits for besides is work of other
/// ranks, of which each has no more than the path is long.
void checkOrder(const schedule::Schedule &order, const PlanRequest &request,
                const PlanResult &result) {
  Paths paths(order, request, result);
  const bool barrier = request.strategy.barrier;
  if (!outnumber(request, result)) {
    expectClose(result.stepSeconds, barrier ? paths.alone() : paths.following(),
                "the step time");
    return;
  }
  // Without a barrier steps overlap, so that only the longest is known.
  const double path = paths.alone();
  const double least =
      std::max(barrier ? path : 0, leastOnCores(request, result));
  const double slowed = path * (1 + ranksOf(result)) +
                        (barrier ? 0 : 2 * order.devices() * paths.latency);
  expect(result.stepSeconds >= least * (1 - 1e-9) &&
             result.stepSeconds <= slowed * (1 + 1e-9),
         "the step time of ranks that share cores is outside its bounds");
}

/// The order that the strategy's schedule has for these stages.
schedule::Schedule orderOf(const PlanRequest &request,
                           const PlanResult &result) {
  const auto &stages = result.stages;
  const int chunks = std::max(1, request.strategy.chunks);
  schedule::ScheduleRequest wanted;
  wanted.chunks = chunks > 1 ? chunks : 0;
  wanted.slices = request.strategy.slices;
  const bool equal =
      std::all_of(stages.begin(), stages.end(), [&](const StagePlan &s) {
        return s.replicas == stages.front().replicas;
      });
  if (equal) { // independent pipelines
    const int r = stages.front().replicas;
    wanted.devices = static_cast<int>(stages.size()) / chunks;
    wanted.microbatches = (request.microbatches + r - 1) / r;
  } else {
    wanted.devices = 0;
    wanted.microbatches = request.microbatches;
    for (const StagePlan &s : stages) {
      wanted.replicas.push_back(s.replicas);
      wanted.devices += s.replicas;
    }
  }
  return equalOrder(request.strategy.schedule, wanted);
}

/// Without a barrier: every replica, link, window and core keeps up with one
/// microbatch a period.
void checkPeriod(const PlanRequest &request, const PlanResult &result) {
  const Topology &topology = request.topology;
  std::vector<double> lower; // of the period
  std::map<std::pair<int, int>, double> onCores;
  const double slower = request.topology.device.stretchFactor,
               turn = turnOf(request, result);
  const size_t count = result.stages.size();
  std::vector<double> there(count, 0), back(count, 0); // into a stage, and back
  for (size_t s = 1; s < count; ++s) {
    const Link link = linkInto(topology, result, s);
    there[s] = hopOf(request, result, s, link, result.stages[s].receiveBytes);
    back[s] =
        hopOf(request, result, s, link, result.stages[s].receiveGradientBytes);
  }
  for (size_t s = 0; s < count; ++s) {
    const StagePlan &stage = result.stages[s];
    auto load = [&](size_t of) {
      const StagePlan &one = result.stages[of];
      const int at = static_cast<int>(of);
      return slower * workOf(one) + one.allReduceSeconds +
             updateOf(request, one) +
             takingOf(request, result, at, at - 1, turn) +
             takingOf(request, result, at, at + 1, turn);
    };
    lower.push_back(load(s) / stage.replicas);
    if (outnumber(request, result))
      for (int device : stage.devices) {
        const auto cores = coresOf(request, result, device);
        onCores[cores] += load(s) / stage.replicas / cores.second;
      }
    // From here to the end and back, once for every microbatch in flight.
    double way = 0;
    for (size_t t = s; t < count; ++t) {
      way += load(t);
      if (t > s)
        way += there[t] + back[t];
    }
    lower.push_back(way /
                    (static_cast<double>(stage.replicas) * stage.inFlight));
    if (s > 0)
      lower.push_back(std::max(there[s], back[s]) /
                      std::min(stage.replicas, result.stages[s - 1].replicas));
  }
  for (auto [cores, work] : onCores)
    lower.push_back(work);
  expectClose(result.stepSeconds,
              request.microbatches *
                  *std::max_element(lower.begin(), lower.end()),
              "the time of the step's microbatches");
}

} // namespace

void verifyStep(const PlanRequest &request, const PlanResult &result) {
  for (size_t s = 0; s < result.stages.size(); ++s)
    expectClose(result.stages[s].allReduceSeconds,
                reduceOf(request.topology, result.stages[s]),
                "stage " + std::to_string(s) + "'s all-reduce");
  const StrategyFacts &facts = request.strategy;
  if (!facts.synchronous)
    return checkPeriod(request, result);
  if (static_cast<int64_t>(result.stages.size()) * request.microbatches * 3 >
      kMostActions)
    return;
  checkOrder(facts.order ? *facts.order : orderOf(request, result), request,
             result);
}

} // namespace pipec::plan
