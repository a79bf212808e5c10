#include "compiler/plan/ReduceOverlap.h"
#include "RandomGraphs.h"
#include "compiler/schedule/Generator.h"

#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

/// Forwards of 1 s, both halves of a backward likewise; messages take nothing.
schedule::Costs costs(int stages) {
  schedule::Costs costs;
  costs.forward.assign(stages, 1);
  costs.backwardInput = costs.backwardWeight = costs.forward;
  costs.comm = {0};
  costs.memoryForward = costs.memoryInput = costs.memoryWeight =
      std::vector<double>(stages, 0);
  return costs;
}

/// Of a pipeline of which there are two.
std::vector<double> exposed(const char *name, std::vector<double> seconds) {
  schedule::ScheduleRequest request;
  request.devices = static_cast<int>(seconds.size());
  request.microbatches = 4;
  const schedule::Schedule order = schedule::generate(name, request);
  std::vector<StagePlan> stages;
  for (double allReduce : seconds) {
    StagePlan stage;
    stage.replicas = 2;
    stage.parameterBytes = 16 << 20; // eight buckets
    stage.allReduceSeconds = allReduce;
    stages.push_back(stage);
  }
  const auto count = static_cast<int>(stages.size());
  return exposedReduction(order, simulate(order, costs(count)), stages);
}

} // namespace

/// Within a backward that sends nothing, all but the last bucket.
TEST(ReduceOverlap, OfTheFirstStage) {
  EXPECT_NEAR(exposed("1f1b", {1.6})[0], 0.2, 1e-9);
  EXPECT_NEAR(exposed("1f1b", {5})[0], 3, 1e-9);
}

/// After what the stage sends, while the first stage still computes.
TEST(ReduceOverlap, OfLaterStages) {
  const std::vector<double> seconds = exposed("1f1b", {0.8, 1.5});
  EXPECT_NEAR(seconds[0], 0.1, 1e-9);
  EXPECT_NEAR(seconds[1], 1.5, 1e-9);
}

/// Weight gradients send nothing: of 1 s each, all but the last bucket hidden.
TEST(ReduceOverlap, OfWeightGradients) {
  const std::vector<double> seconds = exposed("zb-h1", {0.8, 0.8});
  EXPECT_NEAR(seconds[0], 0.1, 1e-9);
  EXPECT_NEAR(seconds[1], 0.1, 1e-9);
}

/// A device that has several stages sums one after the other.
TEST(ReduceOverlap, OneAfterTheOther) {
  schedule::ScheduleRequest request;
  request.devices = 2, request.microbatches = 4, request.chunks = 2;
  const schedule::Schedule order =
      schedule::generate("interleaved-1f1b", request);
  std::vector<StagePlan> stages(4);
  for (StagePlan &stage : stages)
    stage.replicas = 2, stage.parameterBytes = 1 << 24;
  stages[0].allReduceSeconds = 8, stages[2].allReduceSeconds = 80;
  const schedule::Timeline line = simulate(order, costs(4));
  const double end = line.end[0].back();
  // Stage 2 is done first, stage 0 waits for it.
  double done = 0;
  for (size_t i = 0; i < order.order[0].size(); ++i)
    if (order.order[0][i].stage == 2)
      done = line.end[0][i];
  const std::vector<double> seconds = exposedReduction(order, line, stages);
  EXPECT_NEAR(seconds[0], done + 88 - end, 1e-9);
  EXPECT_EQ(seconds[1], 0);
}

/// Processors are charged the whole all-reduce, GPUs what is left of it.
TEST(ReduceOverlap, IsOfGpus) {
  for (const char *device : {"cpu", "a100-80g"}) {
    PlanRequest r;
    r.graph = uniformChain(12, 1e-3, 1 << 16, 1 << 24);
    r.topology = gridTopology("4", deviceModel(device));
    r.strategy = strategyFacts("1f1b");
    r.microbatches = 8;
    r.memoryLimit = -1;
    const bool overlaps = overlapsReduction(r.topology);
    EXPECT_EQ(overlaps, std::string(device) != "cpu");
    const PlanResult result = evaluatePlan(r, {0}, {4});
    const StagePlan &stage = result.stages[0];
    const double work = 2 * (stage.forwardSeconds + stage.backwardInputSeconds +
                             stage.backwardWeightSeconds);
    const double after = result.stepSeconds - work;
    EXPECT_GT(stage.allReduceSeconds, 0);
    if (overlaps)
      EXPECT_LT(after, stage.allReduceSeconds) << device;
    else
      EXPECT_GT(after, stage.allReduceSeconds) << device;
  }
}
