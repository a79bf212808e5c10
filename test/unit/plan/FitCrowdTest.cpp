//===- FitCrowdTest.cpp - ranks that outnumber the cores ------------------===//
#include "compiler/plan/FitCrowd.h"

#include "support/Failure.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pipec::plan {
namespace {

/// Steps that the simulator says with some factor, ring and looks, of tasks
/// between a microsecond and a few milliseconds.
std::vector<CrowdSample> samplesWith(const Crowd &crowd, int ranks, int cores) {
  std::vector<CrowdSample> samples;
  for (int i = 0; i < 20; ++i) {
    const double size = 2e-6 * std::exp2(i / 2.);
    CrowdSample s{size, 1.5 * size, 0.2 * size, 0};
    s.step = crowdStep(s, crowd, ranks, cores, 8, 1e-6);
    s.slower = crowd.factor;
    samples.push_back(s);
  }
  return samples;
}

TEST(FitCrowd, FindsWhatTheStepsWereMadeWith) {
  for (const Crowd &truth :
       {Crowd{1, 0, 3e-6}, Crowd{1.2, 24e-6, 12e-6}, Crowd{1.5, 6e-6, 1e-6}})
    for (auto [ranks, cores] : {std::pair(4, 2), std::pair(3, 2)}) {
      const auto samples = samplesWith(truth, ranks, cores);
      const Crowd found = fitCrowd(samples, ranks, cores, 8, 1e-6);
      EXPECT_EQ(found.factor, truth.factor);
      EXPECT_NEAR(found.ringSeconds, truth.ringSeconds, 2.1e-6);
      // Beyond the ring nobody looks.
      if (truth.seenSeconds + 6e-6 < truth.ringSeconds)
        EXPECT_NEAR(found.seenSeconds, truth.seenSeconds, 1.1e-6);
    }
}

/// A few steps during which something else ran change nothing.
TEST(FitCrowd, DisturbedStepsSayLittle) {
  const Crowd truth{1.2, 24e-6, 5e-6};
  auto samples = samplesWith(truth, 4, 2);
  samples[3].step *= 3, samples[8].step *= 2;
  samples[3].slower = 9, samples[8].slower = 0.1;
  const Crowd found = fitCrowd(samples, 4, 2, 8, 1e-6);
  EXPECT_NEAR(found.factor, truth.factor, 0.05);
  EXPECT_NEAR(found.ringSeconds, truth.ringSeconds, 5e-6);
}

/// Turns do not make tasks faster.
TEST(FitCrowd, FactorsAreAtLeastOne) {
  auto samples = samplesWith({1, 24e-6, 5e-6}, 4, 2);
  for (CrowdSample &sample : samples)
    sample.slower = 0.97;
  EXPECT_EQ(fitCrowd(samples, 4, 2, 8, 1e-6).factor, 1);
}

TEST(FitCrowd, WhoWaitsForAShortTaskDoesNotSleep) {
  EXPECT_EQ(crowdedHop(30e-6, 3e-6, 1e-3, 2), 30e-6);
  EXPECT_NEAR(crowdedHop(30e-6, 3e-6, 2e-6, 2), 7e-6, 1e-12);
  EXPECT_NEAR(crowdedHop(30e-6, 9e-6, 2e-6, 2), 13e-6, 1e-12);
  EXPECT_EQ(crowdedHop(1e-6, 3e-6, 2e-6, 2), 1e-6);
}

TEST(FitCrowd, TimesAreAboveZero) {
  for (const CrowdSample &bad :
       {CrowdSample{0, 1, 0, 1}, CrowdSample{1, 1, 0, 0}})
    try {
      fitCrowd({bad}, 4, 2, 8, 0);
      FAIL();
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::BadModel);
    }
}

} // namespace
} // namespace pipec::plan
