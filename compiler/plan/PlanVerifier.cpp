#include "compiler/plan/PlanVerifier.h"

#include "compiler/plan/Expect.h"
#include "compiler/plan/FarStashVerifier.h"
#include "compiler/plan/StepVerifier.h"
#include "compiler/plan/intraop/ShardingVerifier.h"
#include "compiler/schedule/SpareSlots.h"

#include <algorithm>
#include <map>
#include <set>

namespace pipec::plan {

namespace {

/// Of whole pipelines each is on devices of its own, and all wait for the same
/// barrier.
void checkPipelines(const StrategyFacts &facts,
                    const std::vector<StagePlan> &stages) {
  const int copies = stages.front().replicas;
  expect(copies == 1 || facts.barrier, "copies without a barrier");
  std::map<int, size_t> pipeline; // of a device
  for (const StagePlan &stage : stages) {
    expect(stage.replicas == copies &&
               std::ssize(stage.devices) == std::ssize(stages.front().devices),
           "pipelines have different stages");
    for (size_t q = 0; q < stage.devices.size(); ++q)
      expect(pipeline.try_emplace(stage.devices[q], q).first->second == q,
             "a device is in two pipelines");
  }
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

  if (request.strategy.severalPipelines)
    checkPipelines(request.strategy, stages);
  int total = request.topology.devices();
  int chunks = request.strategy.chunks * request.strategy.copies;
  std::map<int, int> held;
  for (const StagePlan &s : stages) {
    expect(s.replicas >= 1, "a stage has no replica");
    for (int leader : s.devices)
      for (int d = leader; d < leader + s.sharding.degree; ++d) {
        expect(d >= 0 && d < total,
               "device " + std::to_string(d) + " does not exist");
        expect(++held[d] <= chunks,
               "device " + std::to_string(d) + " holds too many stages");
      }
  }
}

struct Totals {
  double forward = 0, backwardInput = 0, weight = 0;
  int64_t parameters = 0, rounded = 0, state = 0, stash = 0, workspace = 0,
          receive = 0, receiveGradient = 0, input = 0, send = 0,
          sendGradient = 0, handover = 0, again = 0, uses = 0;
};

/// What a stage works in that computes all activations again: most at one of
/// its nodes, with what it has from nodes up to there.
int64_t bytesAgain(const CostGraph &graph, const StagePlan &stage) {
  const auto isInside = [&](size_t node) {
    return stage.firstNode <= node && node <= stage.lastNode;
  };
  const size_t count = stage.lastNode - stage.firstNode + 1;
  std::vector<int64_t> has(count, 0), works(count, 0);
  for (size_t i = stage.firstNode; i <= stage.lastNode; ++i) {
    has[i - stage.firstNode] = graph.nodes[i].stashBytes;
    works[i - stage.firstNode] = graph.nodes[i].workspaceBytes;
  }
  for (const CostStash &k :
       graph.repeats.empty() ? graph.stashes : graph.repeats) {
    size_t first = graph.nodes.size();
    for (size_t user : k.users)
      if (isInside(user))
        first = std::min(first, user);
    if (isInside(first) && k.producer >= stage.firstNode)
      has[first - stage.firstNode] += k.bytes;
  }
  for (const CostScratch &k : graph.scratch)
    if (isInside(k.first) && isInside(k.last))
      works[k.last - stage.firstNode] =
          std::max(works[k.last - stage.firstNode], k.bytes);
  int64_t sum = 0, most = 0;
  for (size_t i = 0; i < count; ++i)
    most = std::max(most, (sum += has[i]) + works[i]);
  return most;
}

/// What each stage costs: a tensor counts in every stage that touches it, a
/// value in those that do not make it.
std::vector<Totals> addUp(const CostGraph &graph,
                          const std::vector<StagePlan> &stages) {
  std::vector<Totals> totals(stages.size());
  std::vector<size_t> stageOf(graph.nodes.size());
  for (Totals &t : totals)
    t.forward = graph.forwardTaskSeconds,
    t.backwardInput = graph.backwardTaskSeconds;
  for (size_t s = 0; s < stages.size(); ++s)
    for (size_t i = stages[s].firstNode; i <= stages[s].lastNode; ++i) {
      const CostNode &n = graph.nodes[i];
      Totals &t = totals[s];
      stageOf[i] = s;
      t.forward += n.forwardSeconds;
      t.backwardInput += n.backwardInputSeconds;
      t.weight += n.backwardWeightSeconds;
      t.parameters += n.parameterBytes;
      t.state += n.stateBytes;
      t.stash += n.stashBytes;
      t.workspace = std::max(t.workspace, n.workspaceBytes);
    }
  auto touching = [&](const std::vector<size_t> &users) {
    std::set<size_t> found;
    for (size_t user : users)
      found.insert(stageOf[user]);
    return found;
  };
  for (const CostWeight &w : graph.weights)
    for (size_t s : touching(w.users))
      (w.trainable ? totals[s].parameters : totals[s].state) += w.bytes;
  for (const CostCopy &copy : graph.rounded)
    for (size_t s : touching(copy.users))
      totals[s].rounded += copy.bytes;
  for (const CostStash &k : graph.stashes)
    for (size_t s : touching(k.users))
      if (k.producer >= stages[s].firstNode) // others receive it
        totals[s].stash += k.bytes;
  for (const CostHandover &k : graph.furtherUses)
    if (stageOf[k.first] == stageOf[k.last])
      totals[stageOf[k.first]].uses += k.bytes;
  for (const CostScratch &k : graph.scratch)
    if (stageOf[k.first] == stageOf[k.last])
      totals[stageOf[k.first]].workspace =
          std::max(totals[stageOf[k.first]].workspace, k.bytes);
  for (size_t s = 0; s < stages.size(); ++s)
    totals[s].again = bytesAgain(graph, stages[s]);
  for (const CostStash &k : graph.inputs)
    for (size_t s : touching(k.users))
      totals[s].input += k.bytes;
  for (const CostValue &v : graph.values) {
    const size_t from = stageOf[v.producer];
    std::set<size_t> readers = touching(v.consumers);
    readers.erase(from);
    for (size_t s : readers) {
      totals[s].receive += v.bytes;
      totals[s].receiveGradient += v.gradientBytes;
    }
    if (readers.empty())
      continue;
    // Each adds its gradient to the one that comes from the next.
    totals[from].sendGradient += v.gradientBytes;
    for (size_t s : readers)
      if (s != *readers.rbegin())
        totals[s].sendGradient += v.gradientBytes;
    if (v.keptFrom > stages[from].lastNode)
      totals[from].send += v.bytes;
  }
  for (const CostHandover &h : graph.handovers)
    if (stageOf[h.first] == stageOf[h.last])
      totals[stageOf[h.first]].handover += h.bytes;
  return totals;
}

/// What a group's device has of it.
void shard(const PlanRequest &request, const StagePlan &stage, Totals &t) {
  const ShardedTotals sharded = recomputeSharding(request, stage);
  t.forward = request.graph.forwardTaskSeconds + sharded.forward;
  t.backwardInput = request.graph.backwardTaskSeconds + sharded.backwardInput;
  t.weight = sharded.weight;
  t.parameters -= sharded.savedParameters;
  t.rounded -= sharded.savedRounded;
  t.state -= sharded.savedState;
  t.stash -= sharded.savedStash;
  t.uses += sharded.addedGradients;
  t.workspace += sharded.gathered;
  t.again = sharded.again + sharded.gathered;
}

/// Bytes of messages, data and sums of gradients, in slots.
int64_t messageBytes(const PlanRequest &request, const StagePosition &p,
                     const Totals &t, int between, int spare) {
  const int64_t share = (p.microbatches - 1) / p.replicas + 1;
  const auto slotsOf = [&](int64_t wanted) {
    return request.strategy.synchronous ? std::min(share, wanted) : wanted;
  };
  const int64_t wanted = request.strategy.inFlight(p);
  const int64_t in = slotsOf((p.stage > 0 ? wanted + 1 : wanted) + spare);
  const int64_t back =
      slotsOf(between + (p.stage + 1 < p.stages ? 1 : 0) + spare);
  return in * t.receive + in * t.input + back * t.sendGradient +
         slotsOf(2) * t.send + slotsOf(2) * t.receiveGradient;
}

/// Of the gradients of `others` a slice each, where `holders` share the sum.
int64_t slices(const PlanRequest &request, int64_t gradients, size_t holders,
               size_t others) {
  const int64_t piece = request.topology.device.kind == "cpu"
                            ? int64_t(1) << 20
                            : int64_t(16) << 20;
  const auto count = static_cast<int64_t>(holders);
  const int64_t lines = ((gradients - 1 + count) / count + 63) / 64;
  return std::min(64 * lines, piece) * static_cast<int64_t>(others);
}

int64_t gradientBytes(const PlanRequest &request, const Totals &t) {
  return static_cast<int64_t>(request.strategy.gradientCopies *
                              static_cast<double>(t.parameters + t.uses));
}

/// What each stage's devices sum others' gradients in: of its own weights, and
/// of those that other stages have as well.
std::vector<int64_t> sumsOf(const PlanRequest &request,
                            const std::vector<StagePlan> &stages,
                            const std::vector<Totals> &totals) {
  std::vector<int64_t> sums;
  for (size_t s = 0; s < stages.size(); ++s) {
    const size_t holders = stages[s].devices.size();
    sums.push_back(slices(request, gradientBytes(request, totals[s]), holders,
                          holders - 1));
  }
  for (const CostWeight &w : request.graph.weights) {
    std::vector<std::pair<size_t, int>> uses; // stage and its first device
    std::set<int> leads;
    for (const size_t node : w.uses.empty() ? w.users : w.uses)
      for (size_t s = 0; s < stages.size(); ++s)
        if (stages[s].firstNode <= node && node <= stages[s].lastNode) {
          uses.emplace_back(s, stages[s].devices[0]);
          leads.insert(stages[s].devices[0]);
        }
    if (!w.trainable || leads.size() == 1)
      continue;
    for (const auto &use : uses) {
      const auto others = static_cast<size_t>(
          std::count_if(uses.begin(), uses.end(), [&](const auto &other) {
            return other.second != use.second;
          }));
      sums[use.first] = std::max(
          sums[use.first], slices(request, w.bytes, leads.size(), others));
    }
  }
  return sums;
}

/// From whom to whom messages go: values from the stage that makes them to all
/// that read them, unless it keeps them, and gradients from reader to reader,
/// towards the maker.
schedule::Sends sendsBetween(const CostGraph &graph,
                             const std::vector<StagePlan> &stages) {
  std::vector<std::set<int>> values(stages.size()), gradients(stages.size());
  const auto stageOf = [&](size_t node) {
    int stage = 0;
    while (stages[stage].lastNode < node)
      ++stage;
    return stage;
  };
  for (const CostValue &v : graph.values) {
    const int from = stageOf(v.producer);
    std::set<int> along;
    for (const size_t reader : v.consumers)
      along.insert(stageOf(reader));
    along.erase(from);
    int before = from;
    for (const int to : along) {
      if (stages[from].recompute || v.keptFrom > stages[from].lastNode)
        values[from].insert(to);
      if (v.gradientBytes != 0)
        gradients[to].insert(before);
      before = to;
    }
  }
  schedule::Sends sends;
  for (size_t s = 0; s < stages.size(); ++s) {
    sends.values.push_back({values[s].begin(), values[s].end()});
    sends.gradients.push_back({gradients[s].begin(), gradients[s].end()});
  }
  return sends;
}

int usedDevices(const PlanResult &result) {
  int used = 0;
  for (const StagePlan &s : result.stages)
    for (int d : s.devices)
      used = std::max(used, d + 1);
  return used;
}

/// The times of a stage's tasks and what it receives.
void checkTasks(const StagePlan &stage, const Totals &t,
                const std::string &name) {
  const double input = t.backwardInput + (stage.recompute ? t.forward : 0),
               backward = input + t.weight,
               slower = backward > 0 ? 1 + stage.farStashSeconds / backward : 1;
  expectClose(stage.forwardSeconds, t.forward + stage.farStashSeconds,
              name + "forward time");
  expectClose(stage.backwardInputSeconds, slower * input,
              name + "input-gradient time");
  expectClose(stage.backwardWeightSeconds, slower * t.weight,
              name + "weight-gradient time");
  expect(stage.receiveBytes == t.receive &&
             stage.receiveGradientBytes == t.receiveGradient,
         name + "received bytes");
}

/// What a stage works in while a task runs.
int64_t workBytes(const StagePlan &stage, const Totals &t) {
  return stage.recompute ? t.again : t.workspace;
}

int64_t optimizerBytes(const PlanRequest &request, const Totals &t) {
  return static_cast<int64_t>(request.optimizerBytesPerParameterByte *
                              static_cast<double>(t.parameters));
}

/// All that a device of the stage has to hold for it. `undoes`: it updates
/// before the norm of all gradients is known.
int64_t stageBytes(const PlanRequest &request, const StagePlan &stage,
                   const StagePosition &position, const Totals &t, int spare,
                   bool undoes) {
  const StrategyFacts &strategy = request.strategy;
  const int64_t optimizer = optimizerBytes(request, t);
  const int halves =
      strategy.betweenHalves ? strategy.betweenHalves(position) : 1;
  const bool isHalved = strategy.splitBackward && t.receiveGradient;
  const int64_t between =
      strategy.synchronous
          ? std::min(halves, (request.microbatches - 1) / stage.replicas + 1)
          : halves;
  const int64_t weights = t.parameters + t.rounded;
  return weights * strategy.versions(position) + t.state + workBytes(stage, t) +
         messageBytes(request, position, t, halves, spare) +
         (isHalved ? t.handover * between : 0) + gradientBytes(request, t) +
         optimizer +
         (stage.recompute ? 0 : t.stash * strategy.inFlight(position)) +
         (undoes ? weights + optimizer : 0);
}

/// What the stages of each device take together.
class DeviceMemory {
public:
  explicit DeviceMemory(int64_t limit) : limit(limit) {}

  /// Of `bytes`, one stage of a device works in `works` at a time, and sums in
  /// `sums`.
  void add(const StagePlan &stage, int64_t bytes, int64_t works, int64_t sums) {
    for (int leader : stage.devices)
      for (int d = leader; d < leader + stage.sharding.degree; ++d) {
        onDevice[d] += bytes - works - sums;
        worksOn[d] = std::max(worksOn[d], works);
        sumsOn[d] = std::max(sumsOn[d], sums);
        const int64_t sum = onDevice[d] + worksOn[d] + sumsOn[d];
        expect(sum <= limit, "device " + std::to_string(d) + " needs " +
                                 std::to_string(sum) + " bytes of " +
                                 std::to_string(limit));
      }
  }

private:
  const int64_t limit;
  std::map<int, int64_t> onDevice, worksOn, sumsOn;
};

void checkStages(const PlanRequest &request, const PlanResult &result) {
  DeviceMemory devices(memoryLimitOf(request));
  int devicesFromHere = 0;
  const int used = usedDevices(result);
  std::vector<Totals> totals = addUp(request.graph, result.stages);
  for (size_t s = 0; s < totals.size(); ++s)
    if (result.stages[s].sharding.isSharded())
      shard(request, result.stages[s], totals[s]);
  const std::vector<int64_t> sums = sumsOf(request, result.stages, totals);
  const schedule::Sends sends = sendsBetween(request.graph, result.stages);
  const auto &spareSlots = request.strategy.spareSlots;
  std::vector<FoundBytes> found(totals.size());
  std::map<int, int> spare; // by replicas: other stages have the same
  for (size_t s = result.stages.size(); s-- > 0;) {
    const StagePlan &stage = result.stages[s];
    const std::string name = "stage " + std::to_string(s) + "'s ";
    Totals &t = totals[s];
    checkTasks(stage, t, name);
    devicesFromHere += stage.replicas;
    const StagePosition position{
        static_cast<int>(s), static_cast<int>(result.stages.size()),
        stage.replicas, devicesFromHere, request.microbatches};
    expect(stage.inFlight == request.strategy.inFlight(position) &&
               stage.versions == request.strategy.versions(position),
           name + "in-flight microbatches or weight versions");
    const bool undoes = !request.strategy.barrier && request.clips &&
                        stage.devices[0] + 1 != used;
    if (spareSlots && !spare.contains(stage.replicas))
      spare[stage.replicas] = spareSlots(position, sends);
    const int64_t bytes =
        stageBytes(request, stage, position, t, spare[stage.replicas], undoes) +
        sums[s];
    expect(bytes == stage.memory.total(),
           name + "memory is " + std::to_string(stage.memory.total()) +
               " bytes in the plan and " + std::to_string(bytes) +
               " when recomputed");
    devices.add(stage, bytes, workBytes(stage, t), sums[s]);
    found[s] = {bytes - optimizerBytes(request, t) -
                    (undoes
                         ? t.parameters + t.rounded + optimizerBytes(request, t)
                         : 0),
                t.stash};
  }
  verifyFarStash(request, result, found);
}

} // namespace

void verifyPlan(const PlanRequest &request, const PlanResult &result) {
  checkCoverage(request, result);
  checkStages(request, result);
  verifyStep(request, result);
}

} // namespace pipec::plan
