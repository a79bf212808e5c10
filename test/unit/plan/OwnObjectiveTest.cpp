//===- OwnObjectiveTest.cpp - published planners against enumeration ------===//
//
// Each of these modes has an objective and a search space of its own. Here they
// are written down once more, every point of the space is priced, and the mode
// must propose the best (DAPPLE, whose search keeps one plan a state, must be
// close to it and mostly reach it).
//
//===----------------------------------------------------------------------===//
#include "BruteForce.h"
#include "RandomGraphs.h"
#include "compiler/plan/Baselines.h"
#include "compiler/plan/Collective.h"
#include "compiler/plan/planners/Planners.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

PlanRequest randomRequest(Random &random, int mostNodes) {
  PlanRequest r;
  r.graph = randomGraph(random, random.between(2, mostNodes));
  r.graph.weights.clear(), r.graph.rounded.clear(), r.graph.stashes.clear();
  if (random.between(0, 3)) // so many weights that replicas are dear
    for (CostNode &node : r.graph.nodes)
      node.parameterBytes *= random.between(100, 3000);
  r.topology = oneServer(random.between(1, 4), random.real(1e6, 1e9), 1e-5);
  if (random.between(0, 1))
    r.topology.levels = {{"server", 2, random.real(1e6, 1e8), 1e-5},
                         {"gpu", 2, random.real(1e8, 1e9), 1e-6}};
  r.strategy = strategyFacts(random.between(0, 1) ? "1f1b" : "gpipe");
  r.microbatches = random.between(1, 12);
  r.memoryLimit = -1;
  r.baselines = false;
  return r;
}

/// Stages as (first node, replicas).
using Stages = std::vector<std::pair<size_t, int>>;

/// Every way to cut `nodes` into stages of replicas from `allowed` that add up
/// to at most `devices`.
void forEachStages(size_t nodes, int devices, const std::vector<int> &allowed,
                   const std::function<void(const Stages &)> &body) {
  Stages stages;
  std::function<void(size_t, int)> go = [&](size_t first, int left) {
    if (first == nodes)
      return body(stages);
    for (int count : allowed)
      if (count <= left)
        for (size_t end = first + 1; end <= nodes; ++end) {
          stages.push_back({first, count});
          go(end, left - count);
          stages.pop_back();
        }
  };
  go(0, devices);
}

Stages stagesOf(const Split &split) {
  Stages stages;
  for (size_t s = 0; s < split.starts.size(); ++s)
    stages.push_back({split.starts[s], split.replicas[s]});
  return stages;
}

size_t endOf(const Stages &stages, size_t s, size_t nodes) {
  return s + 1 < stages.size() ? stages[s + 1].first : nodes;
}

//===----------------------------------------------------------------------===//
// Piper: the slowest stage
//===----------------------------------------------------------------------===//

double piperSeconds(const PlanRequest &r, const IntervalCosts &costs,
                    const Stages &stages) {
  double bandwidth = inf, slowest = 0;
  for (const Level &level : r.topology.levels)
    bandwidth = std::min(bandwidth, level.bandwidth);
  const size_t nodes = costs.nodes();
  int behind = 0;
  for (size_t s = stages.size(); s-- > 0;) {
    const auto [first, replicas] = stages[s];
    const size_t end = endOf(stages, s, nodes);
    behind += replicas;
    if (r.microbatches % replicas != 0 || behind > r.microbatches)
      return inf;
    double seconds = 0, weights = 0, cut = 0, memory = 0;
    const int inFlight = (behind + replicas - 1) / replicas;
    for (size_t v = first; v < end; ++v) {
      const StageCost cost = costs.cost(v, v);
      seconds += cost.seconds();
      weights += static_cast<double>(cost.parameterBytes);
      memory +=
          static_cast<double>(cost.stashBytes) * inFlight +
          static_cast<double>(cost.stateBytes) +
          (1 + r.strategy.gradientCopies + r.optimizerBytesPerParameterByte) *
              static_cast<double>(cost.parameterBytes);
    }
    if (r.memoryLimit > 0 && memory > static_cast<double>(r.memoryLimit))
      return inf;
    if (first > 0)
      cut += static_cast<double>(costs.cost(first, first).receiveBytes);
    if (end < nodes)
      cut += static_cast<double>(costs.cost(end, end).receiveBytes);
    slowest =
        std::max(slowest, (seconds + 2 * cut / bandwidth) / replicas +
                              4.0 * (replicas - 1) * weights /
                                  (replicas * r.microbatches * bandwidth));
  }
  return slowest;
}

//===----------------------------------------------------------------------===//
// Alpa: the sum of the stages and B - 1 times the slowest
//===----------------------------------------------------------------------===//

double alpaSeconds(const PlanRequest &r, const IntervalCosts &costs,
                   const Stages &stages) {
  double sum = 0, slowest = 0;
  int used = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto [first, devices] = stages[s];
    const StageCost cost =
        costs.cost(first, endOf(stages, s, costs.nodes()) - 1);
    std::vector<int> mesh(static_cast<size_t>(devices));
    std::iota(mesh.begin(), mesh.end(), 0);
    const double seconds =
        cost.seconds() / devices +
        allReduceSeconds(r.topology, mesh, cost.parameterBytes) /
            r.microbatches;
    sum += seconds;
    slowest = std::max(slowest, seconds);
    used += devices;
  }
  if (used != r.topology.devices()) // a mesh is covered by its submeshes
    return inf;
  return sum + (r.microbatches - 1) * slowest;
}

/// Powers of two inside a server, and whole servers.
std::vector<int> submeshes(const Topology &topology) {
  const int server = topology.levels.back().count;
  std::vector<int> sizes;
  for (int devices = 1; devices <= topology.devices(); ++devices)
    if (devices < server ? (devices & (devices - 1)) == 0
                         : devices % server == 0)
      sizes.push_back(devices);
  return sizes;
}

//===----------------------------------------------------------------------===//
// DAPPLE: latency around a pivot
//===----------------------------------------------------------------------===//

struct PlacedStage {
  size_t first, end;
  std::vector<int> devices;
};

double dappleSeconds(const PlanRequest &r, const IntervalCosts &costs,
                     const std::vector<PlacedStage> &stages) {
  std::vector<double> forward, backward, exchange;
  for (size_t s = 0; s < stages.size(); ++s) {
    const PlacedStage &stage = stages[s];
    double f = 0, b = 0;
    int64_t weights = 0;
    for (size_t v = stage.first; v < stage.end; ++v) {
      const StageCost cost = costs.cost(v, v);
      f += cost.forwardSeconds;
      b += cost.backwardInputSeconds + cost.backwardWeightSeconds;
      weights += cost.parameterBytes;
    }
    if (s > 0) {
      const std::vector<int> &before = stages[s - 1].devices;
      const Link link =
          r.topology.slowestLink({before.front(), before.back(),
                                  stage.devices.front(), stage.devices.back()});
      const double lanes =
          static_cast<double>(std::min(before.size(), stage.devices.size()));
      const StageCost at = costs.cost(stage.first, stage.first);
      for (auto [into, bytes] : {std::pair(&forward, at.receiveBytes),
                                 std::pair(&backward, at.receiveGradientBytes)})
        into->push_back(bytes ? (link.latency + bytes / link.bandwidth) / lanes
                              : 0);
      exchange.push_back(0);
    }
    const double n = static_cast<double>(stage.devices.size());
    forward.push_back(f / n), backward.push_back(b / n);
    exchange.push_back(allReduceSeconds(r.topology, stage.devices, weights));
  }
  // The pivot, from the back: the first whose steady phase outlasts that of the
  // pivot so far and what lies between.
  auto round = [&](size_t s) { return forward[s] + backward[s]; };
  size_t pivot = forward.size() - 1;
  for (size_t s = pivot; s-- > 0;) {
    double between = 0;
    for (size_t t = s + 1; t < pivot; ++t)
      between += round(t);
    if ((r.microbatches - 1) * round(s) >
        (r.microbatches - 1) * round(pivot) + between)
      pivot = s;
  }
  double latency = (r.microbatches - 1) * round(pivot), tail = 0;
  for (size_t s = 0; s <= pivot; ++s)
    latency += forward[s];
  for (size_t s = 0; s < forward.size(); ++s) {
    double drain = 0;
    for (size_t t = std::min(s, pivot); t <= std::max(s, pivot); ++t)
      drain += backward[t];
    tail = std::max(tail, exchange[s] + (s <= pivot ? drain : -drain));
  }
  return latency + tail;
}

/// The devices that a policy gives a stage: fresh servers first (0), started
/// ones first (1), evenly (2).
std::vector<int> dappleDevices(const Topology &topology,
                               const std::vector<int> &used, int count,
                               int policy) {
  const int server = topology.levels.back().count;
  std::vector<int> fill = used, taken;
  while (count-- > 0) {
    int best = -1;
    auto key = [&](int s) {
      const bool last = policy == 0 ? used[s] > 0 : used[s] == 0;
      return policy == 2 ? std::pair(false, fill[s])
                         : std::pair(last, -fill[s]);
    };
    for (int s = 0; s < static_cast<int>(fill.size()); ++s)
      if (fill[s] < server && (best < 0 || key(s) < key(best)))
        best = s;
    taken.push_back(best * server + fill[best]++);
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

double bestDapple(const PlanRequest &r, const IntervalCosts &costs) {
  const int server = r.topology.levels.back().count;
  const int servers = r.topology.devices() / server;
  double best = inf;
  std::vector<PlacedStage> stages;
  std::function<void(size_t, std::vector<int>)> go =
      [&](size_t first, std::vector<int> used) {
        PlacedStage rest{first, costs.nodes(), {}};
        for (int s = 0; s < servers; ++s)
          for (int d = used[s]; d < server; ++d)
            rest.devices.push_back(s * server + d);
        const int left = static_cast<int>(rest.devices.size());
        stages.push_back(rest);
        best = std::min(best, dappleSeconds(r, costs, stages));
        stages.pop_back();
        for (int count = 1; count < left; ++count)
          for (int policy = 0; policy < 3; ++policy)
            for (size_t end = first + 1; end < costs.nodes(); ++end) {
              stages.push_back(
                  {first, end, dappleDevices(r.topology, used, count, policy)});
              std::vector<int> more = used;
              for (int d : stages.back().devices)
                ++more[static_cast<size_t>(d / server)];
              go(end, more);
              stages.pop_back();
            }
      };
  go(0, std::vector<int>(static_cast<size_t>(servers), 0));
  return best;
}

} // namespace

TEST(OwnObjective, Piper) {
  Random random(71);
  int limited = 0, several = 0;
  for (int round = 0; round < rounds(400); ++round) {
    PlanRequest r = randomRequest(random, 6);
    if (round % 3 == 0)
      r.memoryLimit = random.between(20, 120) * 1000, ++limited;
    IntervalCosts costs(r.graph);
    StepModel model(r, costs);
    const int devices = r.topology.devices();
    std::vector<int> allowed(static_cast<size_t>(devices));
    std::iota(allowed.begin(), allowed.end(), 1);
    double best = inf;
    forEachStages(costs.nodes(), devices, allowed, [&](const Stages &stages) {
      best = std::min(best, piperSeconds(r, costs, stages));
    });
    Proposal proposal = proposePiper(r, model);
    ASSERT_EQ(proposal.splits.empty(), best == inf) << round;
    if (best == inf)
      continue;
    const Stages found = stagesOf(proposal.splits[0]);
    several += found.size() > 1;
    EXPECT_NEAR(piperSeconds(r, costs, found), best, 1e-8 * best) << round;
  }
  EXPECT_GT(limited, 100);
  EXPECT_GT(several, 50);
}

TEST(OwnObjective, Alpa) {
  Random random(72);
  int several = 0, replicated = 0;
  for (int round = 0; round < rounds(400); ++round) {
    PlanRequest r = randomRequest(random, 6);
    IntervalCosts costs(r.graph);
    StepModel model(r, costs);
    double best = inf;
    forEachStages(costs.nodes(), r.topology.devices(), submeshes(r.topology),
                  [&](const Stages &stages) {
                    best = std::min(best, alpaSeconds(r, costs, stages));
                  });
    ASSERT_LT(best, inf);
    const Stages found = stagesOf(proposeAlpa(r, model).splits.at(0));
    several += found.size() > 1;
    for (auto [first, devices] : found)
      replicated += devices > 1;
    // Bounds on the slowest stage are told apart from 0.1 % on.
    const double own = alpaSeconds(r, costs, found);
    EXPECT_GE(own, best * (1 - 1e-9)) << round;
    EXPECT_LE(own, best * (1 + 1e-3)) << round;
  }
  EXPECT_GT(several, 50);
  EXPECT_GT(replicated, 50);
}

TEST(OwnObjective, Dapple) {
  Random random(73);
  int all = 0, reached = 0, several = 0;
  double sum = 0;
  for (int round = 0; round < rounds(300); ++round) {
    PlanRequest r = randomRequest(random, 5);
    IntervalCosts costs(r.graph);
    StepModel model(r, costs);
    const Split split = proposeDapple(r, model).splits.at(0);
    std::vector<PlacedStage> found;
    for (size_t s = 0; s < split.starts.size(); ++s)
      found.push_back(
          {split.starts[s],
           s + 1 < split.starts.size() ? split.starts[s + 1] : costs.nodes(),
           split.devices[s]});
    const double best = bestDapple(r, costs),
                 own = dappleSeconds(r, costs, found);
    EXPECT_GE(own, best * (1 - 1e-9)) << round;
    EXPECT_LE(own, best * 1.25) << round;
    several += found.size() > 1;
    reached += own <= best * (1 + 1e-9);
    sum += own / best;
    ++all;
  }
  EXPECT_GT(several, 50);
  EXPECT_GE(reached, all * 95 / 100);
  EXPECT_LE(sum / all, 1.005);
}

/// PipeDream-2BW sweeps equal grids, with and without recomputation; the
/// fastest one of those that fit is taken.
TEST(OwnObjective, TwoBW) {
  Random random(74);
  int again = 0, pipelined = 0;
  for (int round = 0; round < rounds(300); ++round) {
    PlanRequest r = randomRequest(random, 8);
    if (round % 2)
      r.strategy = strategyFacts("2bw");
    r.recompute = round % 3 ? Recompute::Auto : Recompute::None;
    if (round % 2 == 0) { // less than one stage wants
      const PlanResult whole = evaluatePlan(r, {0}, {1});
      r.memoryLimit = static_cast<int64_t>(
          random.real(0.2, 1) *
          static_cast<double>(whole.stages[0].memory.total()));
    }
    r.planner = "2bw";
    const int devices = r.topology.devices();
    double best = inf;
    for (int depth = 1; depth <= devices; ++depth)
      for (bool recompute : {false, true}) {
        const int width = devices / depth;
        if (devices % depth != 0 ||
            depth > static_cast<int>(legalStarts(r.graph).size()) ||
            (r.strategy.synchronous && width > r.microbatches) ||
            (recompute && r.recompute == Recompute::None))
          continue;
        const auto stages = static_cast<size_t>(depth);
        PlanResult grid = evaluatePlan(r, evenStarts(r.graph, stages),
                                       std::vector<int>(stages, width),
                                       std::vector<bool>(stages, recompute));
        bool fits = true;
        for (const StagePlan &stage : grid.stages)
          fits = fits && stage.memory.total() <= memoryLimitOf(r);
        if (fits)
          best = std::min(best, grid.stepSeconds);
      }
    try {
      PlanResult plan = makePlan(r);
      EXPECT_NEAR(plan.stepSeconds, best, 1e-9 * best) << round;
      again += plan.stages[0].recompute;
      pipelined += plan.stages.size() > 1;
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::NoFit) << failure.what();
      EXPECT_EQ(best, inf) << round;
    }
  }
  EXPECT_GT(again, 0);
  EXPECT_GT(pipelined, 30);
}
