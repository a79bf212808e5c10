#include "RandomGraphs.h"
#include "compiler/plan/Choose.h"
#include "compiler/plan/OrderForCosts.h"
#include "compiler/plan/PlanVerifier.h"
#include "compiler/plan/StepBound.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Pipelines.h"
#include "compiler/schedule/Verifier.h"
#include "support/Failure.h"
#include "support/SpareCore.h"

#include <gtest/gtest.h>

#include <map>

#include <algorithm>
#include <cmath>
#include <set>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

PlanRequest uniformRequest(const std::string &strategy, int devices,
                           int microbatches) {
  PlanRequest r;
  r.graph = uniformChain(16, 1e-3, 1000, 10);
  r.topology = oneServer(devices, 1e12, 0);
  r.strategy = strategyFacts(strategy);
  r.microbatches = microbatches;
  r.replication = false;
  r.stages = devices * r.strategy.chunks;
  return r;
}

} // namespace

/// Every synchronous schedule there is can be planned for: all devices hold
/// what the schedule's placement says, and the step is at least the busiest
/// device's work.
TEST(Strategies, EveryScheduleCanBePlanned) {
  int planned = 0;
  for (const schedule::ScheduleRow &row : schedule::schedules()) {
    if (!row.synchronous || std::string(row.name) == "dp")
      continue;
    PlanRequest r = uniformRequest(row.name, 4, 8);
    PlanResult result = makePlan(r);
    ++planned;
    std::set<int> used;
    for (const StagePlan &s : result.stages)
      used.insert(s.devices.begin(), s.devices.end());
    EXPECT_EQ(used, (std::set<int>{0, 1, 2, 3})) << row.name;
    double work = 16 * 3e-3 * 8 / 4;
    EXPECT_GE(result.stepSeconds, work * (1 - 1e-9)) << row.name;
    if (std::string(row.name) != "naive" && std::string(row.name) != "gems") {
      EXPECT_LT(result.stepSeconds, 2.2 * work) << row.name;
    }
    EXPECT_EQ(result.stages.size(), 4u * r.strategy.chunks) << row.name;
  }
  EXPECT_GT(planned, 10);
}

TEST(Strategies, InFlightIsTheSchedulesOwn) {
  // A classic row's formula and the count over its generated order agree.
  for (const char *name : {"gpipe", "1f1b", "naive"})
    for (int stages : {1, 2, 3, 5})
      for (int microbatches : {1, 2, 4, 9}) {
        schedule::ScheduleRequest request;
        request.devices = stages;
        request.microbatches = microbatches;
        auto counted = schedule::inFlight(schedule::generate(name, request));
        StrategyFacts facts = strategyFacts(name);
        for (int s = 0; s < stages; ++s)
          EXPECT_EQ(facts.inFlight({s, stages, 1, stages - s, microbatches}),
                    counted[s][0])
              << name << " " << stages << " " << microbatches << " " << s;
      }
}

TEST(Strategies, ReplicatedInFlightIsTheSchedulesOwn) {
  for (auto replicas :
       {std::vector<int>{2, 1}, {3, 1}, {1, 2, 1}, {2, 2}, {4, 1, 1}}) {
    schedule::ScheduleRequest request;
    request.replicas = replicas;
    request.devices = 0;
    for (int r : replicas)
      request.devices += r;
    request.microbatches = 24;
    auto counted = schedule::inFlight(schedule::generate("1f1b", request));
    StrategyFacts facts = strategyFacts("1f1b");
    int fromHere = request.devices;
    for (size_t s = 0; s < replicas.size(); ++s) {
      int most = *std::max_element(counted[s].begin(), counted[s].end());
      EXPECT_EQ(facts.inFlight({static_cast<int>(s),
                                static_cast<int>(replicas.size()), replicas[s],
                                fromHere, 24}),
                most);
      fromHere -= replicas[s];
    }
  }
}

TEST(Strategies, UnknownNameListsWhatThereIs) {
  try {
    strategyFacts("1f2b");
    FAIL();
  } catch (const Failure &f) {
    EXPECT_EQ(f.code, Exit::Usage);
    for (const char *name : {"pipedream", "zb-h1", "2bw"})
      EXPECT_NE(std::string(f.what()).find(name), std::string::npos)
          << f.what();
  }
}

namespace {
std::vector<PlanRequest> under(const PlanRequest &request,
                               const std::vector<StrategyFacts> &strategies) {
  std::vector<PlanRequest> requests(strategies.size(), request);
  for (size_t i = 0; i < strategies.size(); ++i)
    requests[i].strategy = strategies[i];
  return requests;
}
} // namespace

/// Second place and the row beside the plan are of one strategy: they say one
/// time, or why there are two.
TEST(Strategies, SecondPlaceAndItsRowAgree) {
  PlanRequest r;
  r.graph = uniformChain(8, 1e-3, 1000, 1000);
  r.topology = oneServer(4, 1e9, 1e-6);
  r.microbatches = 8;
  for (const std::vector<int> &shape :
       {std::vector<int>{1, 1}, std::vector<int>{1, 1, 1}}) {
    StrategyChoice choice = chooseStrategy(
        under(r, {strategyFacts("1f1b"), strategyFacts("gpipe")}),
        [&](size_t i, const PlanRequest &asked) {
          PlanRequest shaped = asked;
          shaped.replicas = i ? shape : std::vector<int>{1, 1};
          OrderedPlan made{shaped, makePlan(shaped)};
          made.result.stepSeconds = i ? 2 : 1;
          return made;
        });
    ASSERT_EQ(choice.chosen, 0u);
    EXPECT_EQ(choice.result.runnerUp.find("gpipe, "), 0u);
    ASSERT_EQ(choice.result.baselines.size(), 4u);
    const Baseline &row = choice.result.baselines[2];
    ASSERT_EQ(row.name, "gpipe");
    if (shape.size() == 2) {
      EXPECT_DOUBLE_EQ(row.stepSeconds, 2);
      EXPECT_EQ(row.note, "");
    } else {
      EXPECT_NE(row.stepSeconds, 2);
      EXPECT_EQ(row.note, "2 stages, as the plan");
    }
  }
}

/// What a glance takes for third may be second, and for second the first.
TEST(Strategies, SecondPlaceIsSearchedForLikeTheWinner) {
  PlanRequest r;
  r.graph = uniformChain(8, 1e-3, 1000, 1000);
  r.topology = oneServer(4, 1e9, 1e-6);
  r.microbatches = 8;
  const std::vector<PlanRequest> requests =
      under(r, {strategyFacts("1f1b"), strategyFacts("gpipe"),
                strategyFacts("zb-h1")});
  for (const double found : {1.5, 0.5}) {
    const double glanced[] = {1, 2, 2.1}, searched[] = {1, 2, found};
    const StrategyChoice choice =
        chooseStrategy(requests, [&](size_t i, const PlanRequest &asked) {
          PlanRequest shaped = asked;
          shaped.replicas = std::vector<int>(i + 2, 1);
          OrderedPlan made{shaped, makePlan(shaped)};
          made.result.stepSeconds = (asked.effort < 1 ? glanced : searched)[i];
          return made;
        });
    EXPECT_EQ(choice.chosen, found < 1 ? 2u : 0u);
    EXPECT_EQ(choice.result.runnerUp,
              found < 1 ? "1f1b, 2 stages: 1000 ms a step, +100.0 %"
                        : "zb-h1, 4 stages: 1.50 s a step, +50.0 %");
  }
}

/// The choice is the fastest of what each strategy gives alone, and at least as
/// fast as data parallelism whenever that fits.
TEST(Strategies, ChooseTakesTheFastest) {
  Random random(5);
  std::vector<StrategyFacts> list{strategyFacts("1f1b"), strategyFacts("gpipe"),
                                  strategyFacts("dp"), strategyFacts("zb-h1")};
  int notFirst = 0;
  for (int round = 0; round < 25; ++round) {
    PlanRequest r;
    r.graph = randomGraph(random, 12);
    r.topology = oneServer(4, random.real(1e7, 1e9), 1e-5);
    r.microbatches = random.between(4, 16);
    r.baselines = false;
    StrategyChoice choice = chooseStrategy(under(r, list));
    ASSERT_EQ(choice.stepSeconds.size(), list.size());
    for (double seconds : choice.stepSeconds)
      if (!std::isnan(seconds)) {
        EXPECT_LE(choice.result.stepSeconds, seconds * (1 + 1e-12));
      }
    EXPECT_FALSE(choice.result.runnerUp.empty());
    notFirst += choice.chosen != 0;
  }
  EXPECT_GT(notFirst, 0);
  // Equal but for rounding, and not better by -0.0 %.
  PlanRequest even;
  even.graph = uniformChain(4, 1e-3, 1000, 1000);
  even.topology = oneServer(2, 1e9, 0);
  even.microbatches = 2;
  // Of equally fast ones that with the smaller peak: a device holds all of its
  // stages.
  const StrategyChoice smaller = chooseStrategy(
      under(even, {strategyFacts("interleaved-1f1b"), strategyFacts("1f1b")}),
      [](size_t i, const PlanRequest &asked) {
        OrderedPlan made{asked, {}};
        const int64_t each = i ? 10 << 20 : 6 << 20;
        for (size_t s = 0; s < (i ? 2 : 4); ++s) {
          StagePlan stage;
          stage.devices = {static_cast<int>(s % 2)};
          stage.memory.weights = each;
          made.result.stages.push_back(stage);
        }
        made.result.stepSeconds = 1;
        return made;
      });
  EXPECT_EQ(smaller.chosen, 1u);
  StrategyChoice equal = chooseStrategy(
      under(even, {list[0], list[0]}), [](size_t i, const PlanRequest &asked) {
        OrderedPlan made{asked, makePlan(asked)};
        made.result.stepSeconds *= 1 - 1e-12 * static_cast<double>(i);
        return made;
      });
  EXPECT_EQ(equal.result.runnerUp.find("as fast"), std::string::npos)
      << "a twin is no second place: " << equal.result.runnerUp;
  // Another shape that is as fast, is.
  equal = chooseStrategy(
      under(even, {list[0], list[2]}), [](size_t i, const PlanRequest &asked) {
        PlanRequest shaped = asked;
        shaped.replicas = i ? std::vector<int>{2} : std::vector<int>{1, 1};
        OrderedPlan made{shaped, makePlan(shaped)};
        made.result.stepSeconds = 1 - 1e-12 * static_cast<double>(i);
        return made;
      });
  EXPECT_EQ(equal.result.runnerUp.find(equal.chosen
                                           ? "1f1b, 2 stages: "
                                           : "dp, 1 stage (replicas 2): "),
            0u)
      << equal.result.runnerUp;
  EXPECT_NE(equal.result.runnerUp.find(" s a step, as fast"), std::string::npos)
      << equal.result.runnerUp;
  // Nothing fits: the first strategy's reason.
  PlanRequest tiny;
  tiny.graph = uniformChain(4, 1e-3, 1000, 1000);
  tiny.topology = oneServer(2, 1e9, 0);
  tiny.microbatches = 2;
  tiny.memoryLimit = 10;
  try {
    chooseStrategy(under(tiny, list));
    FAIL();
  } catch (const Failure &f) {
    EXPECT_EQ(f.code, Exit::NoFit);
  }
}

/// Free cores plan ahead: the first alone, as PlanFunction says, and nothing of
/// it is seen in what is chosen.
TEST(Strategies, FreeCoresChangeNothing) {
  Random random(11);
  const std::vector<StrategyFacts> list{
      strategyFacts("1f1b"),  strategyFacts("gpipe"),   strategyFacts("dp"),
      strategyFacts("zb-h1"), strategyFacts("chimera"), strategyFacts("zb-v")};
  for (int round = 0; round < 6; ++round) {
    PlanRequest r;
    r.graph = randomGraph(random, 12);
    r.topology = oneServer(4, random.real(1e7, 1e9), 1e-5);
    r.microbatches = 2 * random.between(2, 8);
    std::vector<PlanRequest> requests = under(r, list);
    for (PlanRequest &request : requests)
      if (!request.strategy.replicates)
        request.stages = 4 * request.strategy.chunks;
    std::vector<std::string> seen;
    for (const bool isAlone : {true, false}) {
      std::vector<SpareCore> claimed;
      while (std::optional<SpareCore> core =
                 isAlone ? SpareCore::claim() : std::nullopt)
        claimed.push_back(std::move(*core));
      std::atomic<int> begun = 0, ended = 0;
      const StrategyChoice choice =
          chooseStrategy(requests, [&](size_t, const PlanRequest &asked) {
            EXPECT_TRUE(begun++ == 0 || ended > 0);
            struct End {
              std::atomic<int> &ended;
              ~End() { ++ended; }
            } const end{ended};
            return OrderedPlan{asked, makePlan(asked)};
          });
      std::string text = std::to_string(choice.chosen) + " " +
                         choice.result.runnerUp + " " + choice.own.strategy;
      for (const double seconds : choice.stepSeconds)
        text += " " + std::to_string(1e9 * seconds);
      for (const SeenPlan &plan : choice.seen)
        text += " " + plan.strategy + std::to_string(1e9 * plan.seconds);
      seen.push_back(text);
    }
    EXPECT_EQ(seen[0], seen[1]);
  }
}

/// What a part of the devices does alone, all of them do, and the rest is idle.
TEST(Strategies, MoreDevicesAreNeverSlower) {
  Random random(7);
  std::vector<StrategyFacts> list{strategyFacts("zb-h1"),
                                  strategyFacts("zb-v")};
  int faster = 0;
  for (int round = 0; round < 12; ++round) {
    PlanRequest r;
    r.graph = randomGraph(random, 12);
    r.topology = oneServer(4, random.real(1e5, 1e7), 1e-5);
    r.microbatches = random.between(2, 6);
    auto straight = [&](const Topology &topology) {
      r.topology = topology;
      std::vector<PlanRequest> requests = under(r, list);
      for (PlanRequest &request : requests)
        if (!request.strategy.replicates)
          request.stages = topology.devices() * request.strategy.chunks;
      return requests;
    };
    const Topology all = r.topology;
    const std::optional<Topology> part = partOf(all);
    ASSERT_TRUE(part && part->devices() == 2);
    StrategyChoice choice = chooseStrategy(straight(all));
    const double before = choice.result.stepSeconds;
    const StrategyChoice alone = chooseStrategy(straight(*part));
    const bool changed = chooseOnFewer(straight(*part), choice);
    EXPECT_LE(choice.result.stepSeconds,
              std::min(before, alone.result.stepSeconds) * (1 + 1e-9));
    EXPECT_EQ(changed, choice.result.stepSeconds < before * (1 - 1e-9));
    EXPECT_EQ(choice.request.topology.devices(), 4);
    EXPECT_EQ(choice.result.baselines.size(), 4u);
    EXPECT_FALSE(choice.result.runnerUp.empty());
    faster += changed;
  }
  EXPECT_GT(faster, 2);
  Topology three = oneServer(3, 1, 0);
  three.levels.insert(three.levels.begin(), {"server", 1, 1, 0});
  EXPECT_EQ(partOf(three)->devices(), 2);
  EXPECT_FALSE(partOf(oneServer(1, 1, 0)));
}

/// No plan is predicted faster than its request's bound, whatever the strategy,
/// the cluster and recomputation; and the bound is worth something.
TEST(Strategies, NoPlanIsBelowItsBound) {
  Random random(6);
  double nearest = 0;
  int planned = 0;
  for (int round = 0; round < 60; ++round)
    for (const char *name :
         {"dp", "naive", "gpipe", "1f1b", "pipedream", "interleaved-1f1b",
          "zb-h1", "zb-v", "chimera", "dualpipe", "gems"}) {
      PlanRequest r;
      r.graph = randomGraph(random, random.between(8, 24));
      int devices = 2 * random.between(1, 2);
      r.topology = oneServer(devices, random.real(1e7, 1e10), 1e-6);
      if (round % 3 == 0)
        r.topology.cores = 2;
      r.strategy = strategyFacts(name);
      r.strategy.barrier = round % 2 == 0 || !r.strategy.splitBackward;
      r.microbatches = r.strategy.synchronous ? 4 * random.between(1, 4) : 1;
      r.replication = round % 4 != 1;
      const bool several =
          r.strategy.severalPipelines && r.strategy.barrier && round % 4 == 2;
      if (!r.strategy.replicates && !several &&
          r.strategy.shape != Shape::DataParallel)
        r.stages = devices * r.strategy.chunks;
      r.recompute = round % 5 ? Recompute::None : Recompute::Full;
      r.effort = 0.05;
      r.baselines = false;
      PlanResult result;
      try {
        result = makePlan(r);
      } catch (const Failure &failure) {
        ASSERT_EQ(failure.code, Exit::Usage) << name << failure.what();
        continue;
      }
      ++planned;
      double bound = stepBound(r);
      EXPECT_LE(bound, result.stepSeconds) << name << " round " << round;
      nearest = std::max(nearest, bound / result.stepSeconds);
    }
  EXPECT_GT(planned, 400);
  EXPECT_GT(nearest, 0.9);
}

/// One microbatch at a time in each of two directions is known to be slow
/// before it is planned.
TEST(Strategies, TheBoundOfGemsKnowsItsWindow) {
  PlanRequest r;
  r.graph = uniformChain(16, 1e-3, 1000, 1000);
  r.topology = oneServer(8, 1e10, 1e-6);
  r.strategy = strategyFacts("gems");
  r.microbatches = 16;
  r.stages = 8;
  r.replication = r.baselines = false;
  EXPECT_GT(stepBound(r), 0.6 * makePlan(r).stepSeconds);
}

/// Whole pipelines stand beside each other, of whatever schedule: on servers of
/// slow links that is faster than one pipeline through all devices, which is
/// what they are where it is not.
TEST(Strategies, PipelinesStandBesideEachOther) {
  Random random(9);
  int several = 0, inside = 0;
  for (int round = 0; round < 8; ++round)
    for (const char *name : {"interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2",
                             "interleaved-zb", "dualpipe-v"}) {
      PlanRequest r;
      r.graph = randomGraph(random, 24);
      r.topology = oneServer(4, 1e10, 1e-6);
      r.topology.levels.insert(r.topology.levels.begin(),
                               {"server", 2, random.real(1e5, 1e8), 1e-4});
      r.strategy = strategyFacts(name);
      r.microbatches = 32;
      r.baselines = false;
      r.useAllDevices = true;
      const PlanResult free = makePlan(r); // verified
      std::set<int> used;
      for (const StagePlan &stage : free.stages) {
        EXPECT_EQ(stage.replicas, free.stages.front().replicas) << name;
        used.insert(stage.devices.begin(), stage.devices.end());
      }
      EXPECT_EQ(used.size(), 8u) << name;
      const int replicas = free.stages.front().replicas;
      EXPECT_GT(static_cast<int>(free.stages.size()), r.strategy.chunks);
      several += replicas > 1;
      inside += replicas > 1 && free.stages.front().devices[1] != 1;
      r.replication = false;
      r.stages = 8 * r.strategy.chunks;
      EXPECT_LE(free.stepSeconds, makePlan(r).stepSeconds * (1 + 1e-9)) << name;
    }
  EXPECT_GT(several, 20);
  EXPECT_GT(inside, 0);
}

/// An order that is searched for is one pipeline's, for its own costs, and all
/// copies have it, wherever it lays out the stages.
TEST(Strategies, SearchedOrdersAreOfOnePipeline) {
  Random random(10);
  for (const auto &[cut, schedule] :
       {std::pair("zb-h1", "zb"), std::pair("zb-v", "zb-v"),
        std::pair("zb-v", "auto")})
    for (bool inside : {false, true}) {
      PlanRequest r;
      r.graph = randomGraph(random, 16);
      r.topology = oneServer(2, 1e10, 1e-6);
      // Fast or slow links between servers.
      r.topology.levels.insert(r.topology.levels.begin(),
                               {"server", 2, inside ? 1e3 : 1e12, 1e-6});
      r.strategy = strategyFacts(cut);
      r.microbatches = 7;
      r.stages = 2 * r.strategy.chunks;
      const PlanResult planned = makePlan(r);
      ASSERT_EQ(planned.stages.front().replicas, 2);
      const OrderedPlan plan = orderForCosts(schedule, r, planned);
      const schedule::Schedule &order = *plan.request.strategy.order;
      EXPECT_TRUE(schedule::verify(order).empty());
      EXPECT_EQ(order.devices(), 4);
      EXPECT_EQ(order.microbatches, 7);
      for (int s = 0; s < order.stages; ++s) {
        ASSERT_EQ(order.replicas(s), 2);
        const bool apart = order.placement[s][1] != order.placement[s][0] + 1;
        EXPECT_EQ(apart, planned.stages.front().devices[1] !=
                             planned.stages.front().devices[0] + 1);
      }
      EXPECT_LE(plan.result.stepSeconds, planned.stepSeconds * 1.05);
      for (const StagePlan &stage : plan.result.stages)
        EXPECT_EQ(stage.replicas, 2);
    }
}

/// What an order by itself comes to is what it comes to under its name.
TEST(Strategies, PipelinesOfAnOrderArePricedAlike) {
  Random random(11);
  for (int round = 0; round < 10; ++round) {
    PlanRequest r;
    r.graph = randomGraph(random, 12);
    r.topology = oneServer(6, random.real(1e6, 1e9), 1e-6);
    r.topology.device.kind = round % 2 ? "cpu" : "cuda"; // which overlaps sums
    r.strategy = strategyFacts("zb-h1");
    r.microbatches = random.between(3, 9);
    r.replicas = {3, 3};
    const PlanResult named = makePlan(r);
    schedule::ScheduleRequest one;
    one.devices = 2;
    one.microbatches = (r.microbatches + 2) / 3;
    for (const StagePlan &stage : named.stages)
      r.cuts.push_back(stage.firstNode);
    r.strategy = factsOfOrder(
        schedule::repeated(schedule::generate("zb-h1", one), r.microbatches,
                           {named.stages[0].devices, named.stages[1].devices}));
    r.strategy.severalPipelines = true;
    const PlanResult ordered = makePlan(r);
    EXPECT_NEAR(ordered.stepSeconds, named.stepSeconds,
                1e-9 * named.stepSeconds);
    for (size_t s : {0, 1})
      EXPECT_EQ(ordered.stages[s].memory.total(),
                named.stages[s].memory.total());
  }
}

/// Who needs so many microbatches for so many stages has fewer copies, or fewer
/// devices, and is refused in the numbers of what lacks least.
TEST(Strategies, PipelinesAreAsManyAsHaveAnOrder) {
  PlanRequest r;
  r.graph = uniformChain(16, 1e-3, 1000, 10);
  r.topology = oneServer(16, 1e12, 0);
  r.strategy = strategyFacts("dualpipe-v"); // two microbatches a device
  r.microbatches = 20;
  r.stages = 8;
  EXPECT_EQ(makePlan(r).stages.front().replicas, 2); // not 4, of 5 each
  r.stages.reset();
  r.useAllDevices = true;
  const PlanResult free = makePlan(r);
  const int copies = free.stages.front().replicas;
  EXPECT_GE((20 + copies - 1) / copies, std::ssize(free.stages));
  r.microbatches = 3;
  try {
    makePlan(r);
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Usage);
    EXPECT_NE(
        std::string(failure.what()).find(", not 3; give --microbatches 4"),
        std::string::npos)
        << failure.what();
  }
  r.microbatches = 4;
  EXPECT_EQ(std::ssize(makePlan(r).stages), 4); // on two of the devices
}

/// Copies wait for each other, which who takes updates back does not.
TEST(Strategies, PipelinesHaveABarrier) {
  PlanRequest r = uniformRequest("zb-h1", 4, 8);
  r.stages = 2;
  r.replicas = {2, 2};
  EXPECT_EQ(makePlan(r).stages.front().replicas, 2);
  r.strategy.barrier = false;
  EXPECT_THROW(makePlan(r), Failure);
  r.strategy.barrier = true;
  r.replicas = {3, 1};
  EXPECT_THROW(makePlan(r), Failure);
}

/// Where steps follow each other without a barrier none is faster than the
/// device that has most to do, however long the first one took to fill.
TEST(Strategies, StepsWithoutABarrierAreNoShorterThanTheirWork) {
  Random random(8);
  for (int round = 0; round < 400; ++round) {
    PlanRequest r;
    r.topology = oneServer(4, random.real(1e6, 1e9), random.real(0, 1e-2));
    const char *names[] = {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v"};
    r.strategy = strategyFacts(names[round % 5]);
    r.strategy.barrier = false;
    r.microbatches = random.between(1, 6);
    r.replication = false;
    const int stages = 4 * r.strategy.chunks;
    r.graph = randomGraph(random, stages + random.between(0, 4));
    for (CostNode &node : r.graph.nodes)
      if (random.between(0, 2) == 0)
        node.parameterBytes = random.between(0, 1 << 30);
    for (int s = 0; s < stages; ++s)
      r.cuts.push_back(static_cast<size_t>(s));
    r.memoryLimit = int64_t(1) << 50;
    PlanResult result = makePlan(r);
    std::map<int, double> work;
    double most = 0;
    for (const StagePlan &stage : result.stages) {
      double &sum = work[stage.devices[0]];
      sum +=
          r.microbatches * (stage.forwardSeconds + stage.backwardInputSeconds +
                            stage.backwardWeightSeconds);
      most = std::max(most, sum);
    }
    EXPECT_GE(result.stepSeconds, most * (1 - 1e-9)) << round;
    EXPECT_LE(stepBound(r), result.stepSeconds) << round;
    PlanResult bad = result;
    bad.stepSeconds *= 0.99;
    EXPECT_THROW(verifyPlan(r, bad), Failure);
  }
}

/// Steps are recomputed for every placement, and without a barrier.
TEST(Strategies, CopiesThatNoMicrobatchComesToAreUpdatedToo) {
  PlanRequest r = uniformRequest("chimera", 2, 1);
  r.topology = oneServer(2, 1e8, 1e-5);
  for (auto &node : r.graph.nodes)
    node.parameterBytes = int64_t(1) << 26;
  r.memoryLimit = int64_t(1) << 40;
  verifyPlan(r, makePlan(r));
}

TEST(Strategies, VerifierKnowsEveryPlacement) {
  for (const char *name : {"pipedream", "interleaved-1f1b", "looped-bfs",
                           "zb-v", "chimera", "dualpipe", "dualpipe-v", "2bw"})
    for (bool barrier : {true, false}) {
      PlanRequest r = uniformRequest(name, 4, 8);
      r.topology = oneServer(4, 1e8, 1e-5);
      if (!r.strategy.synchronous)
        r.microbatches = 1;
      r.strategy.barrier = barrier || !r.strategy.splitBackward;
      PlanResult good = makePlan(r);
      verifyPlan(r, good);
      for (double factor : {0.999, 1.001}) {
        PlanResult bad = good;
        bad.stepSeconds *= factor;
        EXPECT_THROW(verifyPlan(r, bad), Failure) << name << factor;
      }
      PlanResult bad = good;
      bad.stages[0].allReduceSeconds += 1e-6;
      EXPECT_THROW(verifyPlan(r, bad), Failure) << name;
    }
}

/// Where steps have no end a stage updates after a microbatch of each replica:
/// who shares a weight has as many.
TEST(Strategies, CopiesOfAWeightHaveEquallyManyReplicasWithoutAStep) {
  PlanRequest r;
  r.graph = uniformChain(9, 1e-3, 1000, 10);
  r.graph.weights.push_back({"shared", 100, {0, 8}, true});
  r.strategy = strategyFacts("pipedream");
  for (int devices : {3, 5, 6, 7}) {
    r.topology = oneServer(devices, 1e6, 0); // sums are dear, so are cuts
    for (const char *name : {"auto", "flexflow"}) {
      r.planner = name;
      PlanResult result = makePlan(r);
      EXPECT_EQ(result.stages.front().replicas, result.stages.back().replicas)
          << name << " on " << devices;
    }
  }
  auto refusal = [](const PlanRequest &request) -> std::string {
    try {
      makePlan(request);
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::Usage);
      return failure.what();
    }
    return "planned";
  };
  r.topology = oneServer(3, 1e9, 0);
  r.planner = "auto";
  r.replicas = {2, 1};
  const std::string why =
      "strategy 'pipedream' updates stage 0 after 2 microbatches and stage 1 "
      "after 1, but both hold the weight 'shared': give them equally many "
      "replicas";
  EXPECT_EQ(refusal(r), why);
  r.cuts = {0, 4};
  EXPECT_EQ(refusal(r), why);
  r.graph.weights[0].trainable = false;
  EXPECT_EQ(refusal(r), "planned");
}
