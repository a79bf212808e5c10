#include "compiler/plan/PlanVerifier.h"

#include "compiler/schedule/Generator.h"
#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace pipec::plan {

namespace {

[[noreturn]] void broken(const std::string &message) {
  throw Failure(Exit::Internal,
                "the planner's result does not hold: " + message +
                    "; please report this with the model");
}

void expect(bool holds, const std::string &message) {
  if (!holds)
    broken(message);
}

void expectClose(double claimed, double found, const std::string &what) {
  double scale = std::max({std::abs(claimed), std::abs(found), 1e-12});
  expect(std::abs(claimed - found) <= 1e-9 * scale,
         what + " is " + std::to_string(claimed) + " in the plan and " +
             std::to_string(found) + " when recomputed");
}

void checkCoverage(const PlanRequest &request, const PlanResult &result) {
  const auto &stages = result.stages;
  expect(!stages.empty(), "no stages");
  size_t next = 0;
  std::vector<size_t> stageOf(request.graph.nodes.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    expect(stages[s].firstNode == next && stages[s].lastNode >= next,
           "stage " + std::to_string(s) + " is empty or leaves nodes out");
    expect(stages[s].lastNode < stageOf.size(),
           "a stage ends after the last node");
    for (size_t i = stages[s].firstNode; i <= stages[s].lastNode; ++i)
      stageOf[i] = s;
    next = stages[s].lastNode + 1;
  }
  expect(next == stageOf.size(), "nodes after the last stage");
  for (const auto &group : request.graph.pinTogether)
    for (size_t node : group)
      expect(stageOf[node] == stageOf[group.front()],
             "a pinned group is split");

  int total = request.topology.devices();
  int chunks = request.strategy.chunks * request.strategy.copies;
  std::map<int, int> held;
  for (const StagePlan &s : stages) {
    expect(s.replicas >= 1, "a stage has no replica");
    for (int d : s.devices) {
      expect(d >= 0 && d < total,
             "device " + std::to_string(d) + " does not exist");
      expect(++held[d] <= chunks,
             "device " + std::to_string(d) + " holds too many stages");
    }
  }
}

struct Totals {
  double forward = 0, input = 0, weight = 0;
  int64_t parameters = 0, state = 0, stash = 0, workspace = 0, receive = 0,
          receiveGradient = 0;
};

bool inside(const StagePlan &s, size_t node) {
  return node >= s.firstNode && node <= s.lastNode;
}

Totals addUp(const CostGraph &graph, const StagePlan &s) {
  Totals t;
  for (size_t i = s.firstNode; i <= s.lastNode; ++i) {
    const CostNode &n = graph.nodes[i];
    t.forward += n.forwardSeconds;
    t.input += n.backwardInputSeconds;
    t.weight += n.backwardWeightSeconds;
    t.parameters += n.parameterBytes;
    t.state += n.stateBytes;
    t.stash += n.stashBytes;
    t.workspace = std::max(t.workspace, n.workspaceBytes);
  }
  auto used = [&](const std::vector<size_t> &users) {
    return std::any_of(users.begin(), users.end(),
                       [&](size_t u) { return inside(s, u); });
  };
  for (const CostWeight &w : graph.weights)
    if (used(w.users))
      (w.trainable ? t.parameters : t.state) += w.bytes;
  for (const CostStash &k : graph.stashes)
    if (used(k.users))
      t.stash += k.bytes;
  for (const CostValue &v : graph.values)
    if (!inside(s, v.producer) && used(v.consumers)) {
      t.receive += v.bytes;
      t.receiveGradient += v.gradientBytes;
    }
  return t;
}

int usedDevices(const PlanResult &result) {
  int used = 0;
  for (const StagePlan &s : result.stages)
    for (int d : s.devices)
      used = std::max(used, d + 1);
  return used;
}

void checkStages(const PlanRequest &request, const PlanResult &result) {
  int64_t limit = memoryLimitOf(request);
  std::map<int, int64_t> onDevice;
  int devicesFromHere = 0;
  for (size_t s = result.stages.size(); s-- > 0;) {
    const StagePlan &stage = result.stages[s];
    std::string name = "stage " + std::to_string(s) + "'s ";
    Totals t = addUp(request.graph, stage);
    expectClose(stage.forwardSeconds, t.forward, name + "forward time");
    expectClose(stage.backwardInputSeconds,
                t.input + (stage.recompute ? t.forward : 0),
                name + "input-gradient time");
    expectClose(stage.backwardWeightSeconds, t.weight,
                name + "weight-gradient time");
    expect(stage.receiveBytes == t.receive &&
               stage.receiveGradientBytes == t.receiveGradient,
           name + "received bytes");
    devicesFromHere += stage.replicas;
    StagePosition position{
        static_cast<int>(s), static_cast<int>(result.stages.size()),
        stage.replicas, devicesFromHere, request.microbatches};
    int inFlight = request.strategy.inFlight(position);
    int versions = request.strategy.versions(position);
    expect(stage.inFlight == inFlight && stage.versions == versions,
           name + "in-flight microbatches or weight versions");
    bool undo = !request.strategy.barrier && request.clips &&
                stage.devices[0] + 1 != usedDevices(result);
    int64_t bytes =
        t.parameters * versions + t.state + t.workspace + t.receive +
        t.receiveGradient +
        static_cast<int64_t>(request.strategy.gradientCopies *
                             static_cast<double>(t.parameters)) +
        static_cast<int64_t>(request.optimizerBytesPerParameterByte *
                             static_cast<double>(t.parameters)) +
        (stage.recompute ? t.receive * inFlight + t.stash
                         : t.stash * inFlight) +
        (undo ? t.parameters + static_cast<int64_t>(
                                   request.optimizerBytesPerParameterByte *
                                   static_cast<double>(t.parameters))
              : 0);
    expect(bytes == stage.memory.total(),
           name + "memory is " + std::to_string(stage.memory.total()) +
               " bytes in the plan and " + std::to_string(bytes) +
               " when recomputed");
    for (int d : stage.devices) {
      onDevice[d] += bytes;
      expect(onDevice[d] <= limit, "device " + std::to_string(d) + " needs " +
                                       std::to_string(onDevice[d]) +
                                       " bytes of " + std::to_string(limit));
    }
  }
}

/// Longest paths through list order and data dependencies, by repeated sweeps
/// over the devices until nothing changes.
class Paths {
public:
  Paths(const schedule::Schedule &order, const PlanRequest &request,
        const PlanResult &result)
      : order(order), request(request), result(result),
        hops(result.stages.size() + 1, 0) {
    for (size_t s = 1; s < result.stages.size(); ++s)
      hops[s] = hop(result.stages[s - 1], result.stages[s]);
  }

  /// When all have ended and updated, of a step by itself.
  double alone() {
    return run(std::vector<double>(order.order.size(), 0), false);
  }

  /// The time from step to step without a barrier.
  double following() {
    std::vector<double> finish{alone()};
    while (finish.size() < 4)
      finish.push_back(run(released, true));
    return (finish[3] - finish[1]) / 2;
  }

  double latency = 0; ///< the longest between neighbours

private:
  using Key = std::pair<int, int>; // stage, microbatch

  /// Between two stages, either way.
  double hop(const StagePlan &from, const StagePlan &to) {
    int64_t bytes =
        std::max(to.receiveBytes, to.receiveGradientBytes) / order.slices;
    double worst = 0;
    size_t period = std::lcm(from.devices.size(), to.devices.size());
    for (size_t k = 0; k < period; ++k) {
      int a = from.devices[k % from.devices.size()],
          b = to.devices[k % to.devices.size()];
      Link link = request.topology.link(a, b);
      if (a != b)
        latency = std::max(latency, link.latency);
      worst = std::max(worst, link.latency +
                                  static_cast<double>(bytes) / link.bandwidth);
    }
    return bytes == 0 ? 0 : worst;
  }

  /// A step that each device begins when it is released. `follows`: behind
  /// another one, whose verdict goes from the last device to the first.
  double run(const std::vector<double> &release, bool follows) {
    forwardDone.clear(), backwardDone.clear();
    clock = release;
    next.assign(clock.size(), 0);
    verdict.assign(clock.size(), 0);
    settled.assign(clock.size(), !follows);
    const std::vector<int> ahead = schedule::forwardsAhead(order);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t d = 0; d < clock.size(); ++d)
        for (; next[d] < order.order[d].size(); ++next[d], moved = true) {
          if (static_cast<int>(next[d]) == ahead[d] && !settle(d))
            break;
          if (!advance(d, order.order[d][next[d]]))
            break;
        }
    }
    return update();
  }

  bool settle(size_t d) {
    if (settled[d])
      return true;
    if (d + 1 < clock.size()) {
      if (!settled[d + 1])
        return false;
      clock[d] = std::max(clock[d], verdict[d + 1] + latency);
    }
    verdict[d] = clock[d];
    return settled[d] = true;
  }

  /// Runs an action of device d if what it needs is there.
  bool advance(size_t d, const schedule::Action &a) {
    const StagePlan &stage = result.stages[static_cast<size_t>(a.stage)];
    auto &done = a.kind == schedule::Kind::F ? forwardDone : backwardDone;
    int from = a.kind == schedule::Kind::F ? a.stage - 1 : a.stage + 1;
    double ready = 0, duration = stage.forwardSeconds;
    if (a.kind != schedule::Kind::W && from >= 0 && from < order.stages) {
      auto it = done.find({from, a.microbatch});
      if (it == done.end())
        return false;
      ready = it->second + hops[static_cast<size_t>(std::max(from, a.stage))];
    }
    if (a.kind == schedule::Kind::I)
      duration = stage.backwardInputSeconds;
    else if (a.kind == schedule::Kind::W)
      duration = stage.backwardWeightSeconds;
    else if (a.kind == schedule::Kind::B)
      duration = stage.backwardInputSeconds + stage.backwardWeightSeconds;
    clock[d] = std::max(clock[d], ready) + duration / order.slices;
    if (a.kind != schedule::Kind::W)
      done[{a.stage, a.microbatch}] = clock[d];
    return true;
  }

  /// Ends the step; without a barrier a device waits for the norm of those
  /// before it.
  double update() {
    double end = 0, norm = 0;
    released.assign(clock.size(), 0);
    for (size_t d = 0; d < clock.size(); ++d) {
      expect(next[d] == order.order[d].size(),
             "the schedule stops before its end");
      norm = request.strategy.barrier || d == 0
                 ? clock[d]
                 : std::max(clock[d], norm + latency);
      released[d] = norm + updateSeconds(d);
      end = std::max(end, released[d]);
    }
    return end;
  }

  double updateSeconds(size_t d) const {
    double seconds = 0;
    std::set<int> held;
    for (const schedule::Action &a : order.order[d])
      held.insert(a.stage);
    for (int s : held) {
      const StagePlan &stage = result.stages[static_cast<size_t>(s)];
      double traffic = static_cast<double>(stage.parameterBytes) *
                       (3 + 2 * request.optimizerBytesPerParameterByte);
      double measured = request.graph.updateSecondsPerByte *
                        static_cast<double>(stage.parameterBytes);
      seconds +=
          stage.allReduceSeconds +
          (measured > 0
               ? measured
               : traffic / (0.8 * request.topology.device.memoryBandwidth));
    }
    return seconds;
  }

  const schedule::Schedule &order;
  const PlanRequest &request;
  const PlanResult &result;
  std::vector<double> hops; ///< into a stage from the one before, or back
  std::map<Key, double> forwardDone, backwardDone;
  std::vector<double> clock, released, verdict; ///< by device
  std::vector<size_t> next;
  std::vector<char> settled;
};

/// The step of `order` is its longest path. Ranks that share cores take turns:
/// no task is faster than that, and none slower than ranks / cores.
void checkStepOf(const schedule::Schedule &order, const PlanRequest &request,
                 const PlanResult &result) {
  Paths paths(order, request, result);
  const bool barrier = request.strategy.barrier;
  int ranks = 1; // on the fullest server
  std::map<int, std::set<int>> onServer;
  for (const StagePlan &stage : result.stages)
    for (int device : stage.devices) {
      auto &there = onServer[request.topology.server(device)];
      there.insert(device);
      ranks = std::max(ranks, static_cast<int>(there.size()));
    }
  if (request.topology.cores == 0 || ranks <= request.topology.cores) {
    expectClose(result.stepSeconds, barrier ? paths.alone() : paths.following(),
                "the step time");
    return;
  }
  // Without a barrier steps overlap, so that only the longest is known.
  double path = paths.alone();
  double slowed = path * ranks / request.topology.cores +
                  (barrier ? 0 : 2 * ranks * paths.latency);
  expect(result.stepSeconds >= (barrier ? path * (1 - 1e-9) : 0) &&
             result.stepSeconds <= slowed * (1 + 1e-9),
         "the step time of ranks that share cores is outside its bounds");
}

void checkStep(const PlanRequest &request, const PlanResult &result) {
  // The quadratic map-based replay is for plans a person could look at; larger
  // ones rest on their parts, which have been checked above.
  int64_t actions =
      static_cast<int64_t>(result.stages.size()) * request.microbatches;
  if (!request.strategy.synchronous || request.strategy.chunks > 1 ||
      request.strategy.copies > 1 || actions > 20'000)
    return;
  bool uniform = std::all_of(
      result.stages.begin(), result.stages.end(), [&](const StagePlan &s) {
        return s.replicas == result.stages.front().replicas;
      });
  if (request.strategy.order) {
    checkStepOf(*request.strategy.order, request, result);
    return;
  }
  schedule::ScheduleRequest wanted;
  if (uniform) {
    int r = result.stages.front().replicas;
    wanted.devices = static_cast<int>(result.stages.size());
    wanted.microbatches = (request.microbatches + r - 1) / r;
  } else {
    wanted.devices = 0;
    wanted.microbatches = request.microbatches;
    for (const StagePlan &s : result.stages) {
      wanted.replicas.push_back(s.replicas);
      wanted.devices += s.replicas;
    }
  }
  schedule::Schedule order =
      schedule::generate(request.strategy.schedule, wanted);
  checkStepOf(order, request, result);
}

} // namespace

void verifyPlan(const PlanRequest &request, const PlanResult &result) {
  checkCoverage(request, result);
  checkStages(request, result);
  checkStep(request, result);
}

} // namespace pipec::plan
