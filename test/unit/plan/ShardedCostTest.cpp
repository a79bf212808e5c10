//===- ShardedCostTest.cpp - what divided stages cost and keep ------------===//
#include "ShardableGraphs.h"

#include "compiler/plan/PlanVerifier.h"
#include "compiler/plan/StepModel.h"
#include "compiler/plan/intraop/IntraOp.h"
#include "compiler/plan/intraop/ShardedCost.h"
#include "compiler/plan/intraop/ShardingVerifier.h"

#include "support/Failure.h"
#include "gtest/gtest.h"

#include <algorithm>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

TEST(ShardedCost, TheVerifierAddsUpTheSame) {
  Random random(6);
  int gathered = 0, added = 0, rounded = 0;
  for (int round = 0; round < 60; ++round) {
    PlanRequest request =
        requestOf(randomShardable(random, random.between(6, 40)), 24, random);
    const auto anyNode = [&] {
      return static_cast<size_t>(
          random.between(0, static_cast<int>(request.graph.nodes.size()) - 1));
    };
    for (int k = 0; k < 3; ++k) {
      const size_t one = anyNode(), other = anyNode();
      request.graph.scratch.push_back({std::min(one, other),
                                       std::max(one, other),
                                       random.between(1, 300) * 1000});
    }
    const int degree = 2 << random.between(0, 2),
              replicas = random.between(1, 3);
    const size_t nodes = request.graph.nodes.size();
    StagePlan stage;
    stage.firstNode = static_cast<size_t>(random.between(0, 3));
    stage.lastNode = nodes - static_cast<size_t>(random.between(1, 3));
    stage.replicas = replicas;
    for (int q = 0; q < replicas; ++q)
      stage.devices.push_back((replicas - 1 - q) * degree);
    const ShardingGroup group = groupOf(request, degree, replicas);
    const IntraOp program(request.graph, group);
    IntraOp::Sweep sweep(program, stage.firstNode);
    sweep.growTo(stage.lastNode);
    stage.sharding = sweep.best();
    // Any choices will do: change some to others that there are.
    for (int k = 0; k < 3; ++k) {
      const size_t changed = static_cast<size_t>(
          random.between(0, static_cast<int>(stage.sharding.nodes.size()) - 1));
      const std::vector<OpSharding> others =
          choicesOf(*request.graph.sharding, stage.firstNode + changed, degree);
      stage.sharding.nodes[changed] = others[static_cast<size_t>(
          random.between(0, static_cast<int>(others.size()) - 1))];
      if (!stage.sharding.weights.empty())
        stage.sharding.weights[static_cast<size_t>(random.between(
            0, static_cast<int>(stage.sharding.weights.size()) - 1))] =
            random.between(kWhole, 1);
    }
    const StageCost cost = shardedCost(request.graph, {}, stage.firstNode,
                                       stage.lastNode, stage.sharding, group);
    const ShardedTotals totals = recomputeSharding(request, stage);
    EXPECT_NEAR(cost.forwardSeconds,
                totals.forward + request.graph.forwardTaskSeconds, 1e-12);
    EXPECT_NEAR(cost.backwardInputSeconds,
                totals.backwardInput + request.graph.backwardTaskSeconds,
                1e-12);
    EXPECT_NEAR(cost.backwardWeightSeconds, totals.weight, 1e-12);
    EXPECT_EQ(-cost.parameterBytes, totals.savedParameters);
    EXPECT_EQ(-cost.roundedBytes, totals.savedRounded);
    rounded += totals.savedRounded > 0;
    EXPECT_EQ(-cost.stateBytes, totals.savedState);
    EXPECT_EQ(-cost.stashBytes, totals.savedStash);
    EXPECT_EQ(cost.workspaceBytes, totals.gathered);
    EXPECT_EQ(cost.useBytes, totals.addedGradients);
    EXPECT_EQ(cost.againBytes, totals.again + totals.gathered);
    gathered += totals.gathered > 0, added += totals.addedGradients > 0;
  }
  EXPECT_GT(gathered, 20);
  EXPECT_GT(added, 20);
  EXPECT_GT(rounded, 20);
}

namespace {

/// One stage or two, the last of which divides its products by rows among the
/// four devices from `leader` on, its weights in slices.
Split byRows(const PlanRequest &request, std::vector<size_t> starts,
             int leader) {
  Split split;
  split.starts = std::move(starts);
  const size_t count = split.starts.size();
  split.replicas.assign(count, 1);
  split.devices.assign(count, {0});
  split.devices.back() = {leader};
  split.shardings.resize(count);
  StageSharding &last = split.shardings.back();
  last.degree = 4;
  last.nodes.assign(request.graph.nodes.size() - split.starts.back(), {0});
  last.weights.assign(request.graph.weights.size(), kWhole);
  for (size_t w = split.starts.back(); w < last.weights.size(); ++w)
    last.weights[w] = 0;
  return split;
}

bool isRefused(const PlanRequest &request, const PlanResult &plan) {
  try {
    verifyPlan(request, plan);
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Internal);
    return true;
  }
  return false;
}

} // namespace

/// Groups are priced by the links between the first devices; wherever others
/// are slower the verifier sees it.
TEST(ShardedCost, TheVerifierRefusesGroupsThatStraddleServers) {
  const PlanRequest request = twoProducts();
  const IntervalCosts costs(request.graph);
  const StepModel model(request, costs);
  for (int leader = 1; leader <= 4; ++leader)
    EXPECT_EQ(isRefused(request, model.price(byRows(request, {0, 1}, leader))),
              leader < 4)
        << leader;
}

/// Weights in slices that are read whole: one at a time is there as a whole,
/// forward and once more backward, and its gradient's addends until the step's
/// end.
TEST(ShardedCost, SlicesThatAreReadWholeAreCounted) {
  PlanRequest request = twoProducts();
  request.optimizerBytesPerParameterByte = 2;
  const IntervalCosts costs(request.graph);
  const StepModel model(request, costs);
  const PlanResult plan = model.price(byRows(request, {0}, 0));
  EXPECT_FALSE(isRefused(request, plan));
  const int64_t weight = 16 << 20;
  const StagePlan &stage = plan.stages[0];
  EXPECT_EQ(stage.parameterBytes, 2 * weight / 4);
  EXPECT_EQ(stage.memory.weights, 2 * weight / 4);
  EXPECT_EQ(stage.memory.optimizer, 2 * 2 * weight / 4);
  EXPECT_EQ(stage.memory.gradients, 2 * weight);
  EXPECT_EQ(stage.memory.workspace, weight);
  const ShardingGroup group = groupOf(request, 4, 1);
  const double gathers = 2 * ringSeconds(group, weight), work = 2e-3 / 4;
  EXPECT_NEAR(stage.forwardSeconds, work + gathers, 1e-12);
  EXPECT_NEAR(stage.backwardInputSeconds, work + gathers, 1e-12);
  EXPECT_NEAR(stage.backwardWeightSeconds, gathers / request.microbatches,
              1e-12);
  for (int64_t MemoryParts::*part :
       {&MemoryParts::gradients, &MemoryParts::workspace}) {
    PlanResult cheating = plan;
    cheating.stages[0].memory.*part -= weight;
    EXPECT_TRUE(isRefused(request, cheating));
  }
  // By columns each device needs its own slices alone.
  Split columns = byRows(request, {0}, 0);
  for (OpSharding &node : columns.shardings[0].nodes)
    node.factor = 1;
  columns.shardings[0].weights = {1, 1};
  const PlanResult sliced = model.price(columns);
  EXPECT_FALSE(isRefused(request, sliced));
  EXPECT_EQ(sliced.stages[0].memory.gradients, 2 * weight / 4);
  EXPECT_EQ(sliced.stages[0].memory.workspace, 0);
}

/// What is computed again lies in slices where what is kept does.
TEST(ShardedCost, ComputingAgainNeedsNoMoreThanKeeping) {
  PlanRequest request = twoProducts();
  request.graph.stashes[0].users = {1};
  const IntervalCosts costs(request.graph);
  const StepModel model(request, costs);
  Split split = byRows(request, {0}, 0);
  const PlanResult kept = model.price(split);
  split.recompute = {true};
  const PlanResult again = model.price(split);
  EXPECT_FALSE(isRefused(request, again));
  EXPECT_EQ(kept.stages[0].memory.stash, 2 * (1 << 20) / 4);
  EXPECT_EQ(again.stages[0].memory.workspace,
            kept.stages[0].memory.workspace + kept.stages[0].memory.stash);
}
