//===- SmallestSplitTest.cpp - needs that are named can be met ------------===//
#include "RandomGraphs.h"
#include "compiler/plan/Candidates.h"
#include "compiler/plan/Infeasible.h"
#include "compiler/plan/PeakBytes.h"

#include <gtest/gtest.h>

#include <set>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

PlanRequest requestFor(CostGraph graph, const std::string &strategy,
                       int devices) {
  PlanRequest r;
  r.graph = std::move(graph);
  r.topology = oneServer(devices, 1e9, 1e-6);
  r.strategy = strategyFacts(strategy);
  r.microbatches = 4;
  r.baselines = false;
  return r;
}

/// As a model of a few matrices among thousands of small operators.
CostGraph fewHeavyNodes(int nodes) {
  CostGraph graph = uniformChain(nodes, 1e-6, 1000, 1000);
  for (size_t v = 0; v < graph.nodes.size(); v += graph.nodes.size() / 20)
    graph.nodes[v].forwardSeconds = 1;
  return graph;
}

/// The limit that the refusal of a request names.
int64_t limitNamedFor(const PlanRequest &request) {
  try {
    makePlan(request);
  } catch (const NoFit &failure) {
    for (const Remedy &remedy : failure.remedies)
      if (remedy.kind == Remedy::Limit)
        return remedy.amount;
  }
  return 0;
}

} // namespace

TEST(SmallestSplit, ALimitThatIsNamedIsEnoughWhateverTheEffort) {
  Random random(11);
  for (int round = 0; round < 6; ++round) {
    const bool isV = round >= 4; // two stages a device
    PlanRequest r = requestFor(randomGraph(random, isV ? 200 : 1200),
                               isV ? "zb-v" : "1f1b", isV ? 3 : 6);
    r.namesLimitAlone = true;
    for (double effort : {1.0, 1.0 / 16, 1.0 / 32}) {
      r.effort = effort;
      r.memoryLimit = 1;
      const int64_t named = limitNamedFor(r);
      ASSERT_GT(named, 1);
      r.memoryLimit = named;
      EXPECT_EQ(limitNamedFor(r), 0) << "round " << round << " " << effort;
    }
  }
}

TEST(SmallestSplit, OfAPlannerThatKnowsNoMemoryThePlanIsNamed) {
  for (const Recompute recompute : {Recompute::None, Recompute::Auto}) {
    Random random(5);
    PlanRequest r = requestFor(randomGraph(random, 60), "1f1b", 4);
    r.recompute = recompute;
    r.memoryLimit = 1;
    r.memoryLimit = limitNamedFor(r);
    makePlan(r);
    r.planner = "even";
    std::set<int64_t> named;
    for (const int64_t limit : {int64_t(1), r.memoryLimit / 2, r.memoryLimit}) {
      PlanRequest asked = r;
      asked.memoryLimit = limit;
      try {
        makePlan(asked);
        FAIL();
      } catch (const NoFit &failure) {
        ASSERT_FALSE(failure.remedies.empty());
        const int64_t need = failure.remedies.front().amount;
        EXPECT_EQ(failure.shortage,
                  "nothing fits in memory: what planner even finds needs at "
                  "least " +
                      formatBytes(need) + " on a device, " +
                      formatBytes(need - limit) + " more than the " +
                      formatBytes(limit) + " there are");
        // The usual planner fits into the largest of them.
        EXPECT_EQ(failure.remedies.back().text() == "--planner auto",
                  limit == r.memoryLimit);
        named.insert(need);
      }
    }
    ASSERT_EQ(named.size(), 1u);
    r.memoryLimit = *named.begin();
    EXPECT_LE(peakBytes(makePlan(r).stages), r.memoryLimit);
  }
}

/// Piper's keeps to the limit, or finds nothing.
TEST(SmallestSplit, APlannerThatFindsNothingSaysSo) {
  Random random(5);
  PlanRequest r = requestFor(randomGraph(random, 60), "1f1b", 4);
  r.planner = "piper";
  r.memoryLimit = 1;
  try {
    makePlan(r);
    FAIL();
  } catch (const NoFit &failure) {
    EXPECT_EQ(failure.shortage,
              "nothing fits in memory: planner piper finds no plan that keeps "
              "to the 1 B there are on a device");
  }
  r.memoryLimit = limitNamedFor(r);
  EXPECT_LE(peakBytes(makePlan(r).stages), r.memoryLimit);
}

/// More stages than shares of the work that have a place to cut.
TEST(SmallestSplit, AFewHeavyNodesLeaveStagesEnough) {
  const CostGraph graph = fewHeavyNodes(2000);
  const std::vector<size_t> starts = legalStarts(graph);
  EXPECT_LT(coarseStarts(graph, starts, 512).size(), 256u);
  const size_t places = coarseStarts(graph, starts, 512, 384).size();
  EXPECT_GE(places, 384u);
  EXPECT_LE(places, 512u);
  EXPECT_EQ(coarseStarts(graph, starts, 512, 600), starts);

  PlanRequest r = requestFor(graph, "1f1b", 256);
  r.stages = 256;
  r.effort = PlanRequest::kGlance;
  EXPECT_EQ(makePlan(r).stages.size(), 256u);
  r.memoryLimit = 1;
  EXPECT_LT(limitNamedFor(r), int64_t(1) << 30);
}

/// Two stages on each device, of a model with one node.
TEST(SmallestSplit, AStrategyWithoutStagesSaysSo) {
  PlanRequest r = requestFor(uniformChain(1, 1e-3, 100, 100), "zb-v", 4);
  r.replication = false;
  r.useAllDevices = true;
  try {
    makePlan(r);
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Usage);
    EXPECT_STREQ(failure.what(),
                 "strategy 'zb-v' has no stages of this model for 4 devices: "
                 "give other --stages or another --strategy");
  }
}
