#include "compiler/plan/planners/Planners.h"
#include "RandomGraphs.h"
#include "compiler/plan/PlanVerifier.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

Topology twoServers(int each, double inter, double intra) {
  Topology t;
  t.device = deviceModel("h100-sxm");
  t.levels = {{"server", 2, inter, 1e-5}, {"gpu", each, intra, 1e-6}};
  return t;
}

PlanRequest randomRequest(Random &random, bool limited) {
  PlanRequest r;
  r.graph = randomGraph(random, random.between(8, 30));
  r.topology =
      random.between(0, 1)
          ? oneServer(random.between(2, 4), random.real(1e7, 1e9), 1e-5)
          : twoServers(random.between(2, 4), random.real(1e7, 1e8),
                       random.real(1e8, 1e9));
  r.strategy = strategyFacts(random.between(0, 2) ? "1f1b" : "gpipe");
  r.microbatches = random.between(8, 24);
  r.optimizerBytesPerParameterByte = 2;
  r.baselines = false;
  if (limited) {
    r.memoryLimit = random.between(300, 700) * 1000;
    r.recompute = Recompute::Auto;
  }
  return r;
}

} // namespace

/// Large ones are searched in other ways: over fewer cuts first.
TEST(Planners, EachPlansALargeGraph) {
  Random random(52);
  PlanRequest r = randomRequest(random, false);
  r.graph = randomGraph(random, 400);
  for (int devices : {1, 4}) {
    r.topology = oneServer(devices, 1e8, 1e-5);
    for (const PlannerRow &row : planners()) {
      r.planner = row.name;
      EXPECT_NO_THROW(verifyPlan(r, makePlan(r))) << row.name;
    }
  }
}

/// Clusters of more than two levels, a level of one among them.
TEST(Planners, EachPlansClustersOfManyLevels) {
  Random random(53);
  PlanRequest r = randomRequest(random, false);
  r.topology = twoServers(2, 1e7, 1e9);
  r.topology.levels.insert(r.topology.levels.begin() + 1, {"box", 2, 1e8, 0});
  r.topology.levels.insert(r.topology.levels.begin() + 1, {"row", 1, 1e8, 0});
  for (const PlannerRow &row : planners()) {
    r.planner = row.name;
    EXPECT_NO_THROW(verifyPlan(r, makePlan(r))) << row.name;
  }
}

/// Every planner gives a plan that holds (makePlan verifies it), uses devices
/// that exist, and is never predicted faster than ours.
TEST(Planners, EachGivesAPlanAndOursIsFastest) {
  Random random(51);
  std::map<std::string, int> planned, best;
  std::map<std::string, double> ratio;
  for (int round = 0; round < 40; ++round) {
    PlanRequest r = randomRequest(random, round % 3 == 0);
    double ours = 0;
    for (const PlannerRow &row : planners()) {
      r.planner = row.name;
      PlanResult result;
      try {
        result = makePlan(r);
      } catch (const Failure &f) {
        ASSERT_EQ(f.code, Exit::NoFit) << row.name << ": " << f.what();
        continue;
      }
      verifyPlan(r, result);
      ++planned[row.name];
      if (std::string(row.name) == "auto")
        ours = result.stepSeconds;
      else if (ours > 0) {
        EXPECT_GE(result.stepSeconds, ours * (1 - 1e-9))
            << row.name << " in round " << round;
        ratio[row.name] += result.stepSeconds / ours;
      }
    }
  }
  for (const PlannerRow &row : planners()) {
    EXPECT_GT(planned[row.name], 15) << row.name;
    if (std::string(row.name) != "auto") {
      EXPECT_GE(ratio[row.name] / planned[row.name], 1 - 1e-9) << row.name;
    }
  }
}

/// Nor is one device, or one server, where links are dear.
TEST(Planners, OursLeavesDevicesIdleBehindDearLinks) {
  Random random(53);
  int alone = 0, idle = 0;
  for (int round = 0; round < 30; ++round) {
    PlanRequest r = randomRequest(random, false);
    r.graph.weights.clear(), r.graph.rounded.clear();
    const double slow = std::pow(10, random.real(3, 6));
    r.topology = twoServers(random.between(1, 4), slow,
                            slow * std::pow(10, random.real(0, 3)));
    const PlanResult plan = makePlan(r);
    const double ours = plan.stepSeconds;
    std::set<int> used;
    for (const StagePlan &stage : plan.stages)
      used.insert(stage.devices.begin(), stage.devices.end());
    alone += used.size() == 1;
    idle += static_cast<int>(used.size()) < r.topology.devices();
    for (int devices : {1, r.topology.levels[1].count}) {
      const int replicas = std::min(devices, r.microbatches);
      const double fewer = evaluatePlan(r, {0}, {replicas}).stepSeconds;
      EXPECT_LE(ours, fewer * (1 + 1e-9)) << devices << " in round " << round;
    }
  }
  EXPECT_GT(alone, 3);
  EXPECT_GT(idle, alone + 3);
}

TEST(Planners, AreDeterministic) {
  for (const PlannerRow &row : planners()) {
    Random a(52), b(52);
    PlanRequest first = randomRequest(a, false),
                second = randomRequest(b, false);
    first.planner = second.planner = row.name;
    PlanResult x = makePlan(first), y = makePlan(second);
    ASSERT_EQ(x.stages.size(), y.stages.size()) << row.name;
    for (size_t s = 0; s < x.stages.size(); ++s) {
      EXPECT_EQ(x.stages[s].firstNode, y.stages[s].firstNode) << row.name;
      EXPECT_EQ(x.stages[s].devices, y.stages[s].devices) << row.name;
    }
  }
}

/// With few microbatches DAPPLE's latency sees the fill; on a uniform chain
/// with fast links all planners agree with the balanced optimum or beat an even
/// grid.
TEST(Planners, UniformChain) {
  PlanRequest r;
  r.graph = uniformChain(16, 1e-3, 1000, 1'000'000);
  r.topology = twoServers(2, 1e9, 1e10);
  r.strategy = strategyFacts("1f1b");
  r.microbatches = 16;
  r.baselines = false;
  double work = 16 * 3e-3 * 16 / 4;
  for (const PlannerRow &row : planners()) {
    r.planner = row.name;
    PlanResult result = makePlan(r);
    EXPECT_GE(result.stepSeconds, work) << row.name;
    EXPECT_LT(result.stepSeconds, 1.6 * work) << row.name;
  }
}

TEST(Planners, RowsExplainThemselvesAndRefuseWhatTheyCannot) {
  std::set<std::string> names;
  for (const PlannerRow &row : planners()) {
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_GT(std::string(row.summary).size(), 10u);
    EXPECT_GT(std::string(row.source).size(), 5u);
  }
  for (const char *name : {"auto", "even", "pipedream", "dapple", "2bw",
                           "piper", "alpa", "flexflow"})
    EXPECT_TRUE(names.count(name)) << name;
  PlanRequest r;
  r.graph = uniformChain(8, 1e-3, 10, 10);
  r.topology = oneServer(4, 1e9, 0);
  r.strategy = strategyFacts("1f1b");
  r.microbatches = 8;
  auto message = [&]() -> std::string {
    try {
      makePlan(r);
    } catch (const Failure &f) {
      EXPECT_EQ(f.code, Exit::Usage);
      return f.what();
    }
    ADD_FAILURE() << r.planner;
    return {};
  };
  r.planner = "best";
  EXPECT_NE(message().find("flexflow"), std::string::npos);
  r.stages = 2;
  for (const char *name : {"pipedream", "dapple", "2bw", "piper", "alpa"}) {
    r.planner = name;
    EXPECT_NE(message().find(name), std::string::npos);
  }
}
