// Orders made for known stages, and plans under a fixed order.
#include "compiler/plan/OrderForCosts.h"
#include "RandomGraphs.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/schedule/Csv.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Verifier.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

PlanRequest randomRequest(Random &random, const std::string &strategy,
                          int devices) {
  PlanRequest r;
  r.graph = randomGraph(random, 24);
  r.topology = oneServer(devices, 1e9, 1e-6);
  r.strategy = strategyFacts(strategy);
  r.microbatches = 8;
  r.replication = false;
  r.memoryLimit = -1;
  r.stages = devices * r.strategy.chunks;
  return r;
}

std::string failureOf(const PlanRequest &request, Exit code = Exit::Usage) {
  try {
    makePlan(request);
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, code);
    return failure.what();
  }
  return "planned";
}

} // namespace

/// An order searched for the stages at hand is no slower than the published
/// one the stages were cut for.
TEST(OrderForCosts, IsNoSlowerThanTheOrderTheStagesWereCutFor) {
  Random random(7);
  int faster = 0;
  for (int round = 0; round < 6; ++round) {
    PlanRequest r = randomRequest(random, "zb-h1", 3);
    PlanResult cut = makePlan(r);
    OrderedPlan ordered = orderForCosts("zb", r, cut);
    EXPECT_TRUE(schedule::verify(*ordered.request.strategy.order).empty());
    EXPECT_LE(ordered.result.stepSeconds, cut.stepSeconds * (1 + 1e-9));
    faster += ordered.result.stepSeconds < cut.stepSeconds * (1 - 1e-9);
    for (size_t s = 0; s < cut.stages.size(); ++s)
      EXPECT_EQ(ordered.result.stages[s].firstNode, cut.stages[s].firstNode);
  }
  EXPECT_GT(faster, 0);
}

/// Stages for equal costs are not those for the order that is found.
TEST(OrderForCosts, StagesAreCutAgainForTheOrderThatWasFound) {
  Random random(12);
  int faster = 0;
  for (int round = 0; round < 12; ++round) {
    PlanRequest r = randomRequest(random, "zb-h1", 2);
    r.microbatches = 4;
    r.strategy.barrier = true;
    const OrderedPlan once = orderForCosts("zb", r, makePlan(r)),
                      plan = cutAndOrder("zb", r);
    EXPECT_TRUE(schedule::verify(*plan.request.strategy.order).empty());
    EXPECT_LE(plan.result.stepSeconds, once.result.stepSeconds);
    faster += plan.result.stepSeconds < 0.98 * once.result.stepSeconds;
  }
  EXPECT_GT(faster, 0);
}

/// Of a device's stages one works at a time: the room for the others' scratch
/// is free for microbatches.
TEST(OrderForCosts, StagesOfADeviceWorkInOnePlace) {
  Random random(13);
  PlanRequest r = randomRequest(random, "zb-v", 2);
  for (CostNode &node : r.graph.nodes)
    node.workspaceBytes = int64_t(1) << 30;
  const PlanResult cut = makePlan(r);
  const OrderedPlan free = orderForCosts("zb-v", r, cut);
  r.memoryLimit = peakBytes(free.result.stages);
  const OrderedPlan plan = orderForCosts("zb-v", r, cut);
  EXPECT_EQ(plan.result.stepSeconds, free.result.stepSeconds);
}

TEST(OrderForCosts, KeepsTheMemoryLimit) {
  Random random(8);
  PlanRequest r = randomRequest(random, "zb-h1", 4);
  PlanResult cut = makePlan(r);
  int64_t peak = 0;
  for (const StagePlan &stage : cut.stages)
    peak = std::max(peak, stage.memory.total());
  r.memoryLimit = peak;
  for (const char *name : {"zb", "auto"}) {
    OrderedPlan ordered = orderForCosts(name, r, cut);
    for (const StagePlan &stage : ordered.result.stages)
      EXPECT_LE(stage.memory.total(), peak) << name;
  }
}

/// Chimera has twice as many microbatches in flight where that fills the gaps
/// between its units. A cut that holds these within a limit is uneven, or has
/// stages that compute something again; the gaps may cost less.
TEST(OrderForCosts, FewerMicrobatchesInFlightSpareAWorseCut) {
  Random random(10);
  int faster = 0;
  for (int round = 0; round < 6; ++round) {
    PlanRequest r = randomRequest(random, "chimera", 4);
    r.recompute = Recompute::Auto;
    r.memoryLimit =
        peakBytes(cutAndOrder("chimera", r).result.stages) * 13 / 16;
    const OrderedPlan plan = cutAndOrder("chimera", r),
                      again = orderForCosts("chimera", r, makePlan(r));
    EXPECT_LE(peakBytes(plan.result.stages), r.memoryLimit);
    EXPECT_LE(plan.result.stepSeconds, again.result.stepSeconds);
    faster += plan.result.stepSeconds < 0.97 * again.result.stepSeconds;
  }
  EXPECT_GT(faster, 0);
}

/// Of stages by hand nothing is cut or computed again: the usual order does not
/// fit at all, one with gaps does.
TEST(OrderForCosts, FewerMicrobatchesInFlightFitWhereTheUsualOnesDoNot) {
  Random random(11);
  for (int round = 0; round < 3; ++round) {
    PlanRequest r = randomRequest(random, "chimera", 4);
    const OrderedPlan free = cutAndOrder("chimera", r);
    r.cuts = free.request.cuts;
    const int64_t all = peakBytes(free.result.stages);
    r.memoryLimit = all * 14 / 16;
    r.explainNoFit = round > 0; // `auto` does not ask
    EXPECT_EQ(failureOf(r, Exit::NoFit).find("nothing fits in memory"), 0u);
    const OrderedPlan plan = cutAndOrder("chimera", r);
    EXPECT_LE(peakBytes(plan.result.stages), r.memoryLimit);
    EXPECT_TRUE(schedule::verify(*plan.request.strategy.order).empty());
    EXPECT_TRUE(plan.result.limitBinds);
    for (size_t s = 0; s < r.cuts.size(); ++s)
      EXPECT_EQ(plan.result.stages[s].firstNode, r.cuts[s]);
    r.memoryLimit = all / 2;
    try {
      cutAndOrder("chimera", r);
      ADD_FAILURE();
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::NoFit) << failure.what();
    }
  }
}

/// A placement by hand: three stages on two devices, copies of the middle one.
TEST(OrderForCosts, FixedOrdersDecideWhereStagesLive) {
  Random random(9);
  PlanRequest r = randomRequest(random, "1f1b", 2);
  schedule::Schedule order = schedule::readCsv(
      "0F0,0F1,1F0,2F0,2F1,2B0,2B1,1B0,0B0,0B1\n1F1,1B1\n", "hand.csv");
  r.strategy = factsOfOrder(order);
  r.microbatches = 2;
  r.stages = 3;
  PlanResult result = makePlan(r);
  ASSERT_EQ(result.stages.size(), 3u);
  EXPECT_EQ(result.stages[0].devices, (std::vector<int>{0}));
  EXPECT_EQ(result.stages[1].devices, (std::vector<int>{0, 1}));
  EXPECT_EQ(result.stages[2].devices, (std::vector<int>{0}));
  EXPECT_EQ(result.stages[0].inFlight, 2);
  EXPECT_EQ(result.stages[1].inFlight, 1);
  EXPECT_GT(result.stepSeconds, 0);
  r.stages = 2;
  EXPECT_EQ(failureOf(r), "hand.csv has 3 stages, not 2");
}
