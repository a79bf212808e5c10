//===- FarStashTest.cpp - what a stash costs that left the caches ---------===//
#include "compiler/plan/FarStash.h"
#include "RandomGraphs.h"
#include "compiler/plan/PlanVerifier.h"
#include "compiler/plan/StepModel.h"
#include "support/Failure.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

/// A byte costs 1 ns in a cache, and 2, 4 and 8 ns farther away.
Topology withPasses(Topology topology) {
  topology.device.ownCacheBytes = 4 << 20;
  topology.device.passes = {
      {1 << 20, 1e-9}, {4 << 20, 2e-9}, {16 << 20, 4e-9}, {64 << 20, 8e-9}};
  return topology;
}

/// Each node keeps `kept` bytes.
struct Chain : TwoStages {
  Chain(const char *strategy, int microbatches, int64_t kept = 1 << 19)
      : TwoStages(uniformChain(8, 1e-3, kept, 1000), strategy, microbatches) {
    request.topology = withPasses(request.topology);
  }
  std::vector<StagePlan> stages() const { return price().stages; }
};

} // namespace

TEST(FarStash, PassesBetweenTheTimedOnes) {
  const DeviceModel device = withPasses(oneServer(1, 1e9, 0)).device;
  EXPECT_DOUBLE_EQ(passSeconds(device, 1000), 1e-9);
  EXPECT_DOUBLE_EQ(passSeconds(device, 4 << 20), 2e-9);
  EXPECT_NEAR(passSeconds(device, 8 << 20), 3e-9, 1e-15);
  EXPECT_DOUBLE_EQ(passSeconds(device, 1e12), 8e-9);
  EXPECT_EQ(passSeconds(DeviceModel(), 1e9), 0);
}

/// All microbatches in flight are farther apart than the two of which the
/// nodes' times are; both tasks pay once for what one of them keeps.
TEST(FarStash, ManyInFlightCostForwardAndBackward) {
  const Chain few("gpipe", 2), many("gpipe", 16);
  const StagePlan near = few.stages()[0], far = many.stages()[0];
  EXPECT_EQ(near.farStashSeconds, 0);
  const double slot = static_cast<double>(far.memory.stash) / 16;
  EXPECT_GT(far.farStashSeconds, slot * 1e-9);
  EXPECT_LT(far.farStashSeconds, slot * 8e-9);
  EXPECT_NEAR(far.forwardSeconds - near.forwardSeconds, far.farStashSeconds,
              1e-12);
  EXPECT_NEAR(far.backwardInputSeconds + far.backwardWeightSeconds -
                  near.backwardInputSeconds - near.backwardWeightSeconds,
              far.farStashSeconds, 1e-12);
  // 1F1B keeps as few however many microbatches a step has.
  EXPECT_EQ(Chain("1f1b", 16).stages()[1].farStashSeconds, 0);
}

/// What fits the cache from the first to the last is never far, and of a
/// machine that was not timed nothing is said.
TEST(FarStash, SmallOrUnknownCostsNothing) {
  EXPECT_EQ(Chain("gpipe", 16, 100).stages()[0].farStashSeconds, 0);
  Chain unknown("gpipe", 16);
  unknown.request.topology.device.passes.clear();
  EXPECT_EQ(unknown.stages()[0].farStashSeconds, 0);
}

/// Ranks that take turns on a core push out each other's; threads share one.
TEST(FarStash, CoresHaveWhatTheirRanksTouch) {
  Chain alone("gpipe", 4), crowd("gpipe", 4), threads("gpipe", 4);
  crowd.request.topology.cores = 1;
  threads.request.topology.device.threads = 4;
  EXPECT_GT(crowd.stages()[0].farStashSeconds,
            alone.stages()[0].farStashSeconds);
  EXPECT_LT(threads.stages()[0].farStashSeconds,
            alone.stages()[0].farStashSeconds / 4);
}

/// The plan that was measured is predicted as it was measured, and another
/// order with what its own slots cost.
TEST(FarStash, IsTakenOffWhatWasMeasured) {
  Chain modelled("gpipe", 16), measured("gpipe", 16);
  for (CostNode &node : measured.request.graph.nodes) {
    node.forwardSeconds *= 30;
    node.backwardInputSeconds *= 30;
    node.backwardWeightSeconds *= 30;
  }
  const auto sumOf = [](const CostGraph &graph) {
    double sum = 0;
    for (size_t i = 0; i < 4; ++i)
      sum += graph.nodes[i].forwardSeconds;
    return sum;
  };
  const double was = sumOf(measured.request.graph);
  takeOffFarStash(measured.stages(), measured.request.graph);
  const StagePlan again = measured.stages()[1];
  EXPECT_NEAR(again.forwardSeconds, was, 1e-12);
  measured.request.strategy = strategyFacts("1f1b");
  EXPECT_NEAR(measured.stages()[1].forwardSeconds, was - again.farStashSeconds,
              1e-12);
  // Times are not taken off whole, whatever the passes say.
  for (CachePass &pass : modelled.request.topology.device.passes)
    pass.secondsPerByte *= 1e6;
  const double before = sumOf(modelled.request.graph);
  takeOffFarStash(modelled.stages(), modelled.request.graph);
  EXPECT_NEAR(sumOf(modelled.request.graph), before / 2, 1e-12);
}

/// The verifier finds the same from the graph, whatever is placed where, and of
/// every curve.
TEST(FarStash, IsVerified) {
  Random random(11);
  int far = 0;
  const std::vector<std::vector<CachePass>> curves = {
      {{1e6, 1e-9}, {4e6, 2e-9}, {16e6, 4e-9}, {64e6, 8e-9}},
      {{1e6, 1.3e-10}, {3e6, 2.7e-10}, {50e6, 2.7e-10}}, // flat where it is
      {{2e6, 1e-9}},
      {{1e6, 1e-9}, {8e6, 3e-9}, {std::nextafter(8e6, 9e6), 4e-9}}};
  for (const char *strategy :
       {"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "chimera", "pipedream"})
    for (const auto &curve : curves)
      for (int threads : {1, 3})
        for (int cores : {0, 1, 3, 4})
          for (bool again : {false, true}) {
            PlanRequest request;
            request.graph = randomGraph(random, 16);
            for (CostNode &node : request.graph.nodes)
              node.stashBytes += 1'234'567;
            request.topology = withPasses(oneServer(4, 1e9, 1e-6));
            request.topology.device.passes = curve;
            request.topology.device.ownCacheBytes = 1e6;
            request.topology.cores = cores;
            request.topology.device.threads = threads;
            request.strategy = strategyFacts(strategy);
            request.microbatches = 8;
            request.recompute = again ? Recompute::Full : Recompute::None;
            request.effort = 0.05;
            PlanResult plan = makePlan(request);
            verifyPlan(request, plan);
            for (StagePlan &stage : plan.stages)
              if (stage.farStashSeconds > 0) {
                ++far;
                stage.farStashSeconds *= 1.01;
                EXPECT_THROW(verifyPlan(request, plan), Failure);
                stage.farStashSeconds /= 1.01;
              }
          }
  EXPECT_GT(far, 100);
}
