//===- FitCrowdTest.cpp - ranks that outnumber the cores ------------------===//
#include "compiler/plan/FitCrowd.h"

#include "support/Failure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace pipec::plan {
namespace {

Topology serverOf(int ranks, int cores) {
  Topology topology;
  topology.levels = {{"cpu", ranks, 1e10, 20e-6}};
  topology.cores = cores;
  DeviceModel &device = topology.device;
  device.kind = "cpu";
  device.ringSeconds = 20e-6, device.turnSeconds = 1e-6;
  device.noteSeconds = 0.25e-6, device.stepSeconds = 5e-6;
  return topology;
}

/// Steps that the simulator says with some turns and looks, of tasks between a
/// microsecond and some thirty.
std::vector<CrowdSample> samplesWith(const Crowd &crowd,
                                     const Topology &topology) {
  std::vector<CrowdSample> samples;
  for (int i = 0; i < 6; ++i) {
    CrowdSample sample;
    for (int rank = 0; rank < topology.serverSize(); ++rank) {
      StagePlan &stage = sample.stages.emplace_back();
      stage.devices = {rank};
      stage.forwardSeconds = 1e-6 * std::exp2(i);
      stage.backwardInputSeconds = 1.5 * stage.forwardSeconds;
      stage.receiveBytes = stage.receiveGradientBytes = rank > 0 ? 256 << i : 0;
    }
    sample.updates.assign(sample.stages.size(), 1e-6);
    sample.microbatches = 8;
    sample.step = crowdStep(sample, topology, crowd);
    samples.push_back(std::move(sample));
  }
  return samples;
}

TEST(FitCrowd, FindsWhatTheStepsWereMadeWith) {
  for (const Crowd &truth :
       {Crowd{0, 0}, Crowd{2.2e-6, 1e-6}, Crowd{5e-6, 8e-6}})
    for (auto [ranks, cores] : {std::pair(4, 2), std::pair(3, 2)}) {
      const Topology topology = serverOf(ranks, cores);
      const Crowd found = fitCrowd(samplesWith(truth, topology), topology);
      EXPECT_NEAR(found.turnSeconds, truth.turnSeconds, 0.21e-6);
      EXPECT_NEAR(found.seenSeconds, truth.seenSeconds, 0.51e-6);
    }
}

/// A machine that changes ranks ten times as slowly.
TEST(FitCrowd, LooksFurtherWhereTheEndIsTheBest) {
  const Crowd truth{40e-6, 10e-6};
  const Topology topology = serverOf(4, 2);
  const Crowd found = fitCrowd(samplesWith(truth, topology), topology);
  EXPECT_NEAR(found.turnSeconds, truth.turnSeconds, 2e-6);
}

/// A step during which something else ran changes nothing.
TEST(FitCrowd, DisturbedStepsSayLittle) {
  const Crowd truth{2.2e-6, 3e-6};
  const Topology topology = serverOf(4, 2);
  auto samples = samplesWith(truth, topology);
  samples[3].step *= 3;
  const Crowd found = fitCrowd(samples, topology);
  EXPECT_NEAR(found.turnSeconds, truth.turnSeconds, 0.5e-6);
  EXPECT_NEAR(found.seenSeconds, truth.seenSeconds, 1.5e-6);
}

TEST(FitCrowd, TimesAreAboveZero) {
  const Topology topology = serverOf(4, 2);
  auto samples = samplesWith({1e-6, 1e-6}, topology);
  samples[1].step = 0;
  try {
    fitCrowd(samples, topology);
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::BadModel);
  }
}

} // namespace
} // namespace pipec::plan
