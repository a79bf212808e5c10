#include "BruteForce.h"
#include "RandomGraphs.h"
#include "compiler/plan/Baselines.h"
#include "compiler/plan/ChainSearch.h"
#include "compiler/plan/Infeasible.h"
#include "compiler/plan/PlanVerifier.h"
#include "compiler/plan/Refine.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <map>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

PlanRequest requestFor(CostGraph graph, const std::string &strategy,
                       int devices, int microbatches) {
  PlanRequest r;
  r.graph = std::move(graph);
  r.topology = oneServer(devices, 1e9, 1e-6);
  r.strategy = strategyFacts(strategy);
  r.microbatches = microbatches;
  r.replication = false;
  r.optimizerBytesPerParameterByte = 1;
  return r;
}

void forEachSplit(
    const std::vector<size_t> &starts, size_t count,
    const std::function<void(const std::vector<size_t> &)> &body) {
  std::vector<size_t> cut{0};
  std::function<void(size_t)> go = [&](size_t next) {
    if (cut.size() == count)
      return body(cut);
    for (size_t i = next; i < starts.size(); ++i) {
      cut.push_back(starts[i]);
      go(i + 1);
      cut.pop_back();
    }
  };
  go(1);
}

int64_t peakOf(const PlanResult &result) {
  int64_t peak = 0;
  for (const StagePlan &s : result.stages)
    peak = std::max(peak, s.memory.total());
  return peak;
}

} // namespace

/// The exact search's surrogate against every split, for every strategy, on
/// random graphs with and without a binding memory limit.
TEST(ChainSearch, EqualsBruteForce) {
  Random random(7);
  int limited = 0, infeasible = 0;
  for (int round = 0; round < rounds(2000); ++round) {
    const char *strategies[] = {"naive", "gpipe", "1f1b", "pipedream"};
    PlanRequest r = requestFor(randomGraph(random, random.between(2, 9)),
                               strategies[round % 4], 4, random.between(1, 9));
    if (std::string(strategies[round % 4]) == "pipedream")
      r.microbatches = 1;
    size_t count = static_cast<size_t>(random.between(1, 4));
    std::vector<size_t> starts = legalStarts(r.graph);
    if (count > starts.size())
      continue;
    std::vector<int> replicas(count, 1);
    if (round % 3 == 1)
      r.memoryLimit = random.between(20, 160) * 1000, ++limited;
    if (round % 5 == 2)
      r.recompute = Recompute::Auto;
    IntervalCosts costs(r.graph);
    StepModel model(r, costs);
    ChainSearch search(model, starts);
    double best = std::numeric_limits<double>::infinity();
    forEachSplit(starts, count, [&](const std::vector<size_t> &cut) {
      best = std::min(best, search.surrogate({cut, replicas, {}, false}));
    });
    auto found = search.best(replicas, false);
    if (!std::isfinite(best)) {
      EXPECT_FALSE(found) << round;
      ++infeasible;
      continue;
    }
    ASSERT_TRUE(found) << round;
    EXPECT_NEAR(search.surrogate(*found), best, 1e-9 * best) << round;
  }
  EXPECT_GT(limited, 100);
  EXPECT_GT(infeasible, 10);
}

/// Small models: the planner's answer is the best of all splits as simulated.
TEST(Planner, EqualsBruteForceOnSmallModels) {
  Random random(11);
  for (int round = 0; round < rounds(1000); ++round) {
    const char *strategies[] = {"gpipe", "1f1b", "naive"};
    PlanRequest r = requestFor(randomGraph(random, random.between(4, 9)),
                               strategies[round % 3], 3, random.between(1, 8));
    r.topology = oneServer(3, 4e7, 1e-5);
    r.stages = 3;
    PlanResult result = makePlan(r);
    double best = std::numeric_limits<double>::infinity();
    forEachSplit(legalStarts(r.graph), 3, [&](const std::vector<size_t> &cut) {
      best = std::min(best, evaluatePlan(r, cut, {}).stepSeconds);
    });
    EXPECT_NEAR(result.stepSeconds, best, 1e-9 * best) << round;
  }
}

/// Larger ones are searched: never worse than an even split, and close to the
/// best of all splits.
TEST(Planner, NearBruteForceOnLargerModels) {
  Random random(13);
  double worst = 1, sum = 0;
  const int graphs = 20;
  for (int round = 0; round < graphs; ++round) {
    PlanRequest r =
        requestFor(randomGraph(random, 40), "1f1b", 4, random.between(4, 24));
    r.topology = oneServer(4, 4e7, 1e-5);
    r.stages = 4;
    PlanResult result = makePlan(r);
    double best = std::numeric_limits<double>::infinity();
    IntervalCosts costs(r.graph);
    StepModel model(r, costs);
    forEachSplit(legalStarts(r.graph), 4, [&](const std::vector<size_t> &cut) {
      best = std::min(best, model.stepSeconds({cut, {1, 1, 1, 1}, {}, false}));
    });
    double even = evaluatePlan(r, evenStarts(r.graph, 4), {}).stepSeconds;
    EXPECT_LE(result.stepSeconds, even * (1 + 1e-9));
    worst = std::max(worst, result.stepSeconds / best);
    sum += result.stepSeconds / best;
  }
  EXPECT_LT(worst, 1.01);
  EXPECT_LT(sum / graphs, 1.001);
}

/// Cuts are cheap at nodes 2, 4 and 8 alone: from 2 and 4, where every shift by
/// a node is dear, to 4 and 8.
TEST(Refine, OneStageOfTwoAndTwoOfAnother) {
  CostGraph graph = uniformChain(12, 1e-3, 1 << 22, 1000);
  for (size_t i : {1, 3, 7})
    graph.values[i].bytes = graph.values[i].gradientBytes = 1000;
  PlanRequest r = requestFor(std::move(graph), "1f1b", 3, 6);
  const IntervalCosts costs(r.graph);
  const StepModel model(r, costs);
  Split split{{0, 2, 4}, {1, 1, 1}, {false, false, false}, false, {}};
  const double before = model.stepSeconds(split);
  const double after = refine(model, legalStarts(r.graph), split);
  EXPECT_EQ(split.starts, (std::vector<size_t>{0, 4, 8}));
  EXPECT_LT(after, 0.7 * before);
  EXPECT_EQ(after, model.stepSeconds(split));
}

TEST(Planner, UniformChainIsSplitEvenly) {
  for (const char *strategy : {"gpipe", "1f1b", "pipedream"}) {
    PlanRequest r = requestFor(uniformChain(12, 1e-3, 0, 1000), strategy, 4, 8);
    if (std::string(strategy) == "pipedream")
      r.microbatches = 1;
    r.stages = 4;
    PlanResult result = makePlan(r);
    ASSERT_EQ(result.stages.size(), 4u) << strategy;
    for (size_t s = 0; s < 4; ++s) {
      EXPECT_EQ(result.stages[s].firstNode, 3 * s) << strategy;
      EXPECT_EQ(result.stages[s].devices,
                std::vector<int>{static_cast<int>(s)});
    }
    double work = 12 * 3e-3;
    double want =
        std::string(strategy) == "pipedream" ? work / 4 : work + 7 * work / 4;
    EXPECT_NEAR(result.stepSeconds, want, 1e-3 * want) << strategy;
  }
}

TEST(Planner, MemoryFollowsTheStrategy) {
  // Four stages of three layers; a layer keeps 100 bytes and has 1000 of
  // weights.
  auto memory = [](const char *strategy, int microbatches) {
    PlanRequest r = requestFor(uniformChain(12, 1e-3, 100, 1000), strategy, 4,
                               microbatches);
    r.stages = 4;
    return makePlan(r).stages;
  };
  auto gpipe = memory("gpipe", 8), flush = memory("1f1b", 8),
       async = memory("pipedream", 1);
  for (size_t s = 0; s < 4; ++s) {
    int64_t depth = static_cast<int64_t>(4 - s);
    EXPECT_EQ(gpipe[s].memory.stash, 8 * 300);
    EXPECT_EQ(flush[s].memory.stash, depth * 300);
    EXPECT_EQ(async[s].memory.stash, depth * 300);
    EXPECT_EQ(flush[s].memory.weights, 3000);
    EXPECT_EQ(async[s].memory.weights, depth * 3000);
    EXPECT_EQ(async[s].memory.optimizer, 3000);
    EXPECT_EQ(async[s].memory.gradients, 3000);
  }
}

/// Where updates may not stand, all devices but the last keep what was before.
TEST(Planner, MemoryOfUpdatesThatMayNotStand) {
  for (const char *strategy : {"zb-h1", "zb-v", "interleaved-zb"}) {
    PlanRequest r =
        requestFor(uniformChain(16, 1e-3, 100, 1000), strategy, 4, 8);
    r.stages = 4 * r.strategy.chunks;
    r.optimizerBytesPerParameterByte = 2;
    PlanResult kept = makePlan(r);
    r.clips = true;
    EXPECT_EQ(peakOf(makePlan(r)), peakOf(kept)); // a barrier: nothing to undo
    r.strategy.barrier = false;
    PlanResult undone = makePlan(r);
    int64_t undo = 0;
    for (const StagePlan &stage : undone.stages) {
      bool last = stage.devices[0] == 3;
      EXPECT_EQ(stage.memory.undo, last ? 0 : 3 * stage.parameterBytes)
          << strategy;
      undo += stage.memory.undo;
    }
    EXPECT_EQ(undo, 3 * 3 * 4000) << strategy;
    r.clips = false;
    for (const StagePlan &stage : makePlan(r).stages)
      EXPECT_EQ(stage.memory.undo, 0);
    // The limit counts it.
    r.clips = true;
    int64_t most = 0;
    std::map<int, int64_t> onDevice;
    for (const StagePlan &stage : undone.stages)
      most = std::max(most, onDevice[stage.devices[0]] += stage.memory.total());
    r.cuts.clear();
    for (const StagePlan &stage : undone.stages)
      r.cuts.push_back(stage.firstNode);
    r.memoryLimit = most;
    EXPECT_NO_THROW(makePlan(r));
    r.memoryLimit = most - 1;
    EXPECT_THROW(makePlan(r), Failure);
  }
}

/// ZB-H2 at equal times has no bubble but at its ends, which steps share when
/// there is no barrier between them.
TEST(Planner, StepsWithoutABarrierOverlap) {
  PlanRequest r = requestFor(uniformChain(8, 1e-3, 0, 0), "zb-h2", 4, 16);
  r.topology = oneServer(4, 1e15, 0);
  r.stages = 4;
  double work = 2 * 3e-3; // of a microbatch on a device
  EXPECT_NEAR(makePlan(r).stepSeconds, 16 * work + 3 * work / 3, 1e-9);
  r.strategy.barrier = false;
  PlanResult plan = makePlan(r);
  EXPECT_NEAR(plan.stepSeconds, 16 * work, 1e-9);
  EXPECT_NEAR(plan.bubble, 0, 1e-6);
  PlanResult bad = plan;
  bad.stepSeconds *= 0.999;
  EXPECT_THROW(verifyPlan(r, bad), Failure);
  // Ranks that take turns: no faster than their work, nor than with a barrier.
  r.topology.cores = 2;
  double shared = makePlan(r).stepSeconds;
  EXPECT_NEAR(shared, 4 * 16 * work / 2, 0.02 * shared);
}

/// A receiver copies what it takes, but for a few bytes, which come with their
/// announcement: 100,000 bytes in 1 ms keep it from computing, twice a
/// microbatch in the middle of the pipeline.
TEST(Planner, RanksCopyWhatTheyReceive) {
  for (const char *strategy : {"1f1b", "gpipe", "zb-h1", "pipedream"}) {
    PlanRequest r = requestFor(uniformChain(8, 1e-3, 100'000, 0), strategy, 4,
                               std::string(strategy) == "pipedream" ? 1 : 8);
    r.topology = oneServer(4, 1e15, 0);
    r.stages = 4;
    const double free = makePlan(r).stepSeconds;
    // Who has a core to itself looks for a message: nothing wakes it up.
    r.topology.device.ringSeconds = 1e-4;
    EXPECT_NEAR(makePlan(r).stepSeconds, free, 1e-6) << strategy;
    PlanRequest slow = r;
    slow.topology = oneServer(4, 1e8, 0);
    slow.topology.device.ringSeconds = 1e-4;
    const PlanResult copies = makePlan(slow);
    verifyPlan(slow, copies);
    EXPECT_GT(copies.stepSeconds, free + 1.9e-3 * slow.microbatches)
        << strategy;
    // Costs of the stages are those of their work.
    EXPECT_NEAR(copies.stages[1].forwardSeconds, 2e-3, 1e-9);
    slow.graph = uniformChain(8, 1e-3, 4096, 0);
    EXPECT_NEAR(makePlan(slow).stepSeconds, free, 1e-6) << strategy;
  }
}

/// Four ranks on two cores are changed for each other between tasks, and see
/// their messages some time after they came.
TEST(Planner, RanksThatOutnumberCoresTakeTurns) {
  for (const char *strategy : {"1f1b", "gpipe", "zb-h1", "pipedream"}) {
    PlanRequest r = requestFor(uniformChain(8, 1e-3, 1'000, 0), strategy, 4,
                               std::string(strategy) == "pipedream" ? 1 : 2);
    r.topology = oneServer(4, 1e15, 0);
    r.topology.cores = 2;
    r.stages = 4;
    r.topology.device.ringSeconds = 1e-9;
    const double awake = makePlan(r).stepSeconds;
    r.topology.device.crowdTurnSeconds = 0.5e-3;
    const PlanResult changed = makePlan(r);
    verifyPlan(r, changed);
    // Two ranks a core, two tasks of each for a microbatch.
    EXPECT_NEAR(changed.stepSeconds, awake + 2e-3 * r.microbatches,
                r.strategy.synchronous ? 1.1e-3 : 1e-6)
        << strategy;
    r.topology.device.crowdTurnSeconds = 0;
    r.topology.device.crowdSeenSeconds = 1e-3;
    r.topology.device.ringSeconds = 1e-3;
    const PlanResult sleepy = makePlan(r);
    verifyPlan(r, sleepy);
    if (r.strategy.synchronous) {
      EXPECT_GT(sleepy.stepSeconds, awake + 1e-3) << strategy;
    }
  }
}

/// A few bytes cost who takes them something, too, and are seen some time after
/// they were sent: 4 stages of 1F1B wait for each other.
TEST(Planner, NotesAreTakenAndSeen) {
  for (const char *strategy : {"1f1b", "pipedream"}) {
    PlanRequest r = requestFor(uniformChain(8, 1e-4, 100, 0), strategy, 4,
                               std::string(strategy) == "pipedream" ? 1 : 8);
    r.topology.device.kind = "cpu";
    r.topology.device.ringSeconds = 20e-6;
    r.topology.levels.back().latency = 20e-6;
    r.topology.device.seenSeconds = 0;
    r.stages = 4;
    const double before = makePlan(r).stepSeconds;
    r.topology.device.noteSeconds = 5e-6;
    const PlanResult taken = makePlan(r);
    verifyPlan(r, taken);
    EXPECT_GT(taken.stepSeconds, before + 5e-6 * r.microbatches) << strategy;
    r.topology.device.seenSeconds = 8e-6;
    const PlanResult seen = makePlan(r);
    verifyPlan(r, seen);
    if (r.strategy.synchronous)
      EXPECT_GT(seen.stepSeconds, taken.stepSeconds + 6 * 7e-6);
    EXPECT_GE(seen.stepSeconds, taken.stepSeconds);
  }
}

/// Who has a core to itself sees a neighbour's message at once, or is woken by
/// it; between servers it takes what the network takes.
TEST(Planner, MessagesBetweenServersTakeTheirTime) {
  for (int cores : {0, 1}) {
    PlanRequest r = requestFor(uniformChain(8, 1e-4, 1'000, 0), "1f1b", 4, 4);
    r.topology.levels = {{"server", 2, 1e12, 0}, {"cpu", 2, 1e12, 20e-6}};
    r.topology.cores = cores;
    r.topology.device.kind = "cpu";
    r.topology.device.ringSeconds = 20e-6;
    r.stages = 4;
    const double near = makePlan(r).stepSeconds;
    r.topology.levels[0].latency = 5e-3;
    const PlanResult far = makePlan(r);
    verifyPlan(r, far);
    // At least there and back.
    EXPECT_GT(far.stepSeconds, near + 9e-3) << cores << " cores";
  }
}

/// Who waits for tasks of more than a millisecond, one after the other on its
/// core, sleeps.
TEST(Planner, RanksThatTakeShortTurnsDoNotSleep) {
  auto hops = [](double seconds, int cores) {
    PlanRequest r =
        requestFor(uniformChain(8, seconds, 1'000, 0), "1f1b", 4, 2);
    r.topology = oneServer(4, 1e15, 0);
    r.topology.cores = cores;
    r.topology.device.kind = "cpu";
    r.stages = 4;
    r.topology.device.crowdSeenSeconds = r.topology.device.seenSeconds = 1e-7;
    r.topology.device.ringSeconds = 1e-9;
    const double awake = makePlan(r).stepSeconds;
    r.topology.device.ringSeconds = r.topology.levels.back().latency = 1e-3;
    const PlanResult plan = makePlan(r);
    verifyPlan(r, plan);
    return plan.stepSeconds - awake;
  };
  EXPECT_LT(hops(1e-6, 2), 1e-5);
  EXPECT_LT(hops(0.12e-3, 2), 1e-5);  // 0.48 ms for a backward, two of a core
  EXPECT_GT(hops(0.3e-3, 2), 0.4e-3); // 1.2 ms
  EXPECT_LT(hops(0.2e-3, 4), 1e-5);   // 0.8 ms
}

TEST(Planner, TheEndOfAStepIsCounted) {
  for (const char *strategy : {"1f1b", "zb-h1", "pipedream"}) {
    PlanRequest r = requestFor(uniformChain(8, 1e-4, 1'000, 0), strategy, 2,
                               std::string(strategy) == "pipedream" ? 1 : 4);
    r.stages = 2;
    const double before = makePlan(r).stepSeconds;
    r.topology.device.stepSeconds = 1e-3;
    const PlanResult after = makePlan(r);
    verifyPlan(r, after);
    EXPECT_NEAR(after.stepSeconds, before + 1e-3, 1e-5) << strategy;
  }
}

TEST(Planner, TakingAMessageCostsItsReceiver) {
  PlanRequest r = requestFor(uniformChain(8, 1e-4, 100'000, 0), "1f1b", 2, 8);
  r.topology.device.kind = "cpu";
  r.topology.device.ringSeconds = 20e-6;
  r.stages = 2;
  const double before = makePlan(r).stepSeconds;
  r.topology.device.takeSeconds = 50e-6;
  const PlanResult after = makePlan(r);
  verifyPlan(r, after);
  // Every forward of the second stage takes one.
  EXPECT_GT(after.stepSeconds, before + 8 * 45e-6);
}

TEST(Planner, MemoryLimitMovesTheCuts) {
  // 1F1B keeps four microbatches on the first stage: with little memory it must
  // take fewer layers than the last.
  PlanRequest r = requestFor(uniformChain(16, 1e-3, 1000, 0), "1f1b", 4, 16);
  r.stages = 4;
  for (CostValue &value : r.graph.values)
    value.bytes = value.gradientBytes = 10;
  PlanResult free = makePlan(r);
  r.memoryLimit = peakOf(free) - 1;
  PlanResult tight = makePlan(r);
  EXPECT_LE(peakOf(tight), r.memoryLimit);
  EXPECT_GT(tight.stepSeconds, free.stepSeconds);
  EXPECT_LT(tight.stages[0].lastNode, free.stages[0].lastNode);
}

TEST(Planner, NothingFitsSaysByHowMuchAndWhatWould) {
  PlanRequest r = requestFor(uniformChain(16, 1e-3, 1000, 100), "gpipe", 4, 16);
  r.stages = 4;
  r.memoryLimit = 40'000;
  std::string message;
  try {
    makePlan(r);
    FAIL();
  } catch (const Failure &f) {
    EXPECT_EQ(f.code, Exit::NoFit);
    message = f.what();
  }
  size_t at = message.find("--memory-limit ");
  ASSERT_NE(at, std::string::npos) << message;
  int64_t enough = std::stoll(message.substr(at + 15));
  EXPECT_NE(message.find("--recompute auto"), std::string::npos) << message;
  // The promise is true, and tight.
  r.memoryLimit = enough;
  EXPECT_LE(peakOf(makePlan(r)), enough);
  r.memoryLimit = enough - 1;
  EXPECT_THROW(makePlan(r), Failure);
  r.memoryLimit = 40'000;
  r.recompute = Recompute::Auto;
  EXPECT_LE(peakOf(makePlan(r)), 40'000);
}

TEST(Planner, ReplicasOfManyStagesAreToldByRuns) {
  EXPECT_EQ(shortReplicas({3, 1}), "3-1");
  EXPECT_EQ(shortReplicas(std::vector<int>(64, 16)), "64 x 16");
  std::vector<int> mixed(30, 8);
  mixed[0] = 1;
  EXPECT_EQ(shortReplicas(mixed), "1 x 1, 29 x 8");
  for (size_t s = 0; s < mixed.size(); s += 2)
    mixed[s] = 4;
  EXPECT_EQ(shortReplicas(mixed), "1 x 4, 1 x 8, 1 x 4, 1 x 8, 1 x 4, 1 x 8, "
                                  "1 x 4, 1 x 8, 1 x 4, …");
}

/// Less effort simulates fewer splits; time is not looked at.
TEST(Planner, EffortIsCountedInSimulations) {
  PlanRequest r = requestFor(uniformChain(60, 1e-3, 1000, 100), "1f1b", 8, 32);
  for (size_t v = 0; v < r.graph.nodes.size(); ++v)
    r.graph.nodes[v].forwardSeconds *= 1 + static_cast<double>(v * 7 % 13);
  r.replication = true;
  r.useAllDevices = false;
  const PlanResult whole = makePlan(r);
  r.effort = 1.0 / 16;
  const PlanResult quick = makePlan(r);
  EXPECT_GT(quick.simulations, 0);
  EXPECT_LE(4 * quick.simulations, whole.simulations);
  EXPECT_LE(whole.stepSeconds, quick.stepSeconds * (1 + 1e-9));
}

TEST(Planner, HandWrittenSplitsAndReplicas) {
  PlanRequest r =
      requestFor(uniformChain(9, 1e-3, 100, 1000), "pipedream", 3, 1);
  r.replicas = {2, 1};
  PlanResult result = makePlan(r);
  ASSERT_EQ(result.stages.size(), 2u);
  EXPECT_EQ(result.stages[0].devices, (std::vector<int>{0, 1}));
  EXPECT_EQ(result.stages[1].devices, (std::vector<int>{2}));
  EXPECT_EQ(result.stages[0].lastNode, 5u);
  EXPECT_EQ(result.stages[0].versions, 2); // ceil(3 devices / 2 replicas)
  EXPECT_EQ(result.stages[1].versions, 1);
  r.cuts = {0, 4};
  PlanResult fixed = makePlan(r);
  EXPECT_EQ(fixed.stages[1].firstNode, 4u);
  EXPECT_GT(fixed.stepSeconds, result.stepSeconds);
}

TEST(Planner, ReplicatesWhereItPays) {
  // One heavy layer without weights, then a light one with many: 15-1.
  CostGraph g = uniformChain(2, 1e-3, 1000, 10);
  g.nodes[0].forwardSeconds = 43e-3;
  g.nodes[1].parameterBytes = 400'000'000;
  PlanRequest r = requestFor(g, "pipedream", 16, 1);
  r.topology = oneServer(16, 10e9, 1e-6);
  r.replication = true;
  PlanResult result = makePlan(r);
  ASSERT_EQ(result.stages.size(), 2u);
  EXPECT_EQ(result.stages[0].replicas, 15);
  EXPECT_EQ(result.stages[1].replicas, 1);
  ASSERT_FALSE(result.baselines.empty());
  EXPECT_EQ(result.baselines[0].name, "data parallel");
  EXPECT_LT(result.stepSeconds, result.baselines[0].stepSeconds);
}

/// Beside one stage on all devices GPipe is a pipeline over them.
TEST(Planner, GPipeBesideOneStageHasAsManyAsDevices) {
  const PlanResult result =
      makePlan(requestFor(uniformChain(8, 1e-3, 1000, 1000), "dp", 4, 8));
  ASSERT_EQ(result.stages.size(), 1u);
  ASSERT_EQ(result.baselines.size(), 4u);
  EXPECT_EQ(result.baselines[1].note, "of one stage, as the plan");
  const Baseline &gpipe = result.baselines[2], &alone = result.baselines[3];
  EXPECT_EQ(gpipe.name, "gpipe");
  EXPECT_EQ(gpipe.note, "4 stages, a device each");
  // 8 microbatches and 3 turns of fill and drain, of a quarter of the work.
  EXPECT_NEAR(gpipe.stepSeconds / alone.stepSeconds, 11.0 / 32, 1e-2);
}

/// One strategy has one time: the row of a gpipe plan is that plan.
TEST(Planner, GPipeBesideItselfIsThePlan) {
  Random random(11);
  for (int round = 0; round < 8; ++round) {
    PlanRequest r = requestFor(randomGraph(random, 24), "gpipe", 4, 8);
    r.stages = 3;
    const PlanResult result = makePlan(r);
    ASSERT_EQ(result.stages.size(), 3u);
    const Baseline &gpipe = result.baselines[2];
    EXPECT_EQ(gpipe.name, "gpipe");
    EXPECT_TRUE(gpipe.fits);
    EXPECT_EQ(gpipe.stepSeconds, result.stepSeconds);
    EXPECT_EQ(gpipe.note, "this plan");
  }
}

TEST(Planner, DataParallelAndUsageErrors) {
  PlanRequest r = requestFor(uniformChain(4, 1e-3, 100, 1000), "dp", 4, 8);
  PlanResult result = makePlan(r);
  ASSERT_EQ(result.stages.size(), 1u);
  EXPECT_EQ(result.stages[0].replicas, 4);
  EXPECT_NEAR(result.stepSeconds, 2 * 4 * 3e-3, 1e-4);
  auto rejects = [&](auto &&change) {
    PlanRequest bad =
        requestFor(uniformChain(4, 1e-3, 100, 1000), "1f1b", 4, 8);
    change(bad);
    try {
      makePlan(bad);
      ADD_FAILURE() << "accepted";
    } catch (const Failure &f) {
      EXPECT_EQ(f.code, Exit::Usage) << f.what();
    }
  };
  rejects([](PlanRequest &b) { b.stages = 5; });
  rejects([](PlanRequest &b) { b.stages = 0; });
  rejects([](PlanRequest &b) { b.microbatches = 0; });
  rejects([](PlanRequest &b) { b.replicas = {3, 2}; });
  rejects([](PlanRequest &b) { b.replicas = {0, 2}; });
  rejects([](PlanRequest &b) { b.cuts = {1, 2}; });
  rejects([](PlanRequest &b) { b.cuts = {0, 2, 2}; });
  rejects([](PlanRequest &b) { b.cuts = {0, 9}; });
  rejects(
      [](PlanRequest &b) { b.strategy = strategyFacts("dp"), b.stages = 2; });
}

TEST(Planner, VerifierRejectsTamperedPlans) {
  PlanRequest r = requestFor(uniformChain(8, 1e-3, 100, 1000), "1f1b", 2, 4);
  r.stages = 2;
  PlanResult good = makePlan(r);
  verifyPlan(r, good);
  auto rejects = [&](auto &&change) {
    PlanResult bad = good;
    change(bad);
    EXPECT_THROW(verifyPlan(r, bad), Failure);
  };
  rejects([](PlanResult &p) { p.stepSeconds *= 0.99; });
  rejects([](PlanResult &p) { p.stages.pop_back(); });
  rejects([](PlanResult &p) { ++p.stages[1].firstNode; });
  rejects([](PlanResult &p) { p.stages[0].memory.stash -= 1; });
  rejects([](PlanResult &p) { p.stages[0].forwardSeconds *= 0.5; });
  rejects([](PlanResult &p) { p.stages[0].devices = p.stages[1].devices; });
  rejects([](PlanResult &p) { p.stages[1].devices = {7}; });
  rejects([](PlanResult &p) { p.stages[1].receiveBytes = 0; });
}

TEST(Planner, ThousandsOfNodesInUnderASecond) {
  Random random(3);
  PlanRequest r = requestFor(randomGraph(random, 4000), "1f1b", 8, 32);
  r.stages = 8;
  const std::clock_t began = std::clock(); // of this process alone
  PlanResult result = makePlan(r);
  const double seconds =
      static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  EXPECT_EQ(result.stages.size(), 8u);
  EXPECT_LT(seconds, 3.0); // about 0.3 s where no other core's work slows it
  PlanResult again = makePlan(r);
  for (size_t s = 0; s < 8; ++s)
    EXPECT_EQ(result.stages[s].firstNode, again.stages[s].firstNode);
}

/// "does not fit" is the table's to say; why is the row's.
TEST(Planner, BaselinesThatDoNotFitSayWhatTheyNeed) {
  PlanRequest r = requestFor(uniformChain(8, 1e-3, 100, 1 << 20), "1f1b", 4, 8);
  r.memoryLimit = 7 << 20;
  const PlanResult result = makePlan(r);
  const Baseline &everything = result.baselines[0];
  EXPECT_EQ(everything.name, "data parallel");
  EXPECT_FALSE(everything.fits);
  EXPECT_GT(everything.peakBytes, r.memoryLimit);
  EXPECT_EQ(everything.note, "needs about " +
                                 formatBytes(everything.peakBytes) +
                                 " on a device");
}

/// Also where the search is given more or less than there is.
TEST(Planner, BaselinesKeepToWhatThereIs) {
  PlanRequest r = requestFor(uniformChain(8, 1e-3, 100, 1 << 20), "1f1b", 4, 8);
  r.memoryLimit = 1 << 30;
  const int64_t need = makePlan(r).baselines[0].peakBytes;
  r.trueLimit = need - 1;
  EXPECT_FALSE(makePlan(r).baselines[0].fits);
  r.memoryLimit = need - 1;
  r.trueLimit = need;
  EXPECT_TRUE(makePlan(r).baselines[0].fits);
}
