//===- StepTotalsTest.cpp - what a usual step consists of -----------------===//
#include "runtime/exec/Recorder.h"
#include "runtime/run/Results.h"

#include <gtest/gtest.h>

using namespace pipec;

namespace {

/// Steps of `count` forwards of so many seconds each.
void run(StepTotals &totals, const std::vector<double> &steps, int count = 2) {
  int64_t step = 0;
  for (double seconds : steps) {
    for (int i = 0; i < count; ++i)
      totals.add('F', 0, step, seconds / count, seconds / count / 2);
    totals.endStep(step++, seconds);
  }
}

double meanForward(const StepTotals &totals) {
  const std::vector<TaskTotal> sums = totals.middle();
  return sums.at(0).seconds / static_cast<double>(sums.at(0).calls);
}

} // namespace

/// The first step warms up, one of the others was disturbed: neither says
/// anything of the rest.
TEST(StepTotals, DisturbedStepsDoNotCount) {
  StepTotals totals(1);
  run(totals, {90, 2, 4, 80, 3, 5});
  const std::vector<TaskTotal> sums = totals.middle();
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].kind, 'F');
  EXPECT_EQ(sums[0].calls, 6); // of the steps of 3, 4 and 5
  EXPECT_DOUBLE_EQ(sums[0].seconds, 12);
  EXPECT_DOUBLE_EQ(sums[0].coreSeconds, 6);
}

/// A run of one step, or one that has no steps (PipeDream): all that was done.
TEST(StepTotals, WithoutAnEndAllIsOneStep) {
  StepTotals totals(0);
  totals.add('B', 2, 0, 1, 1);
  totals.add('B', 2, 1, 3, 1);
  ASSERT_EQ(totals.middle().size(), 1u);
  EXPECT_EQ(totals.middle()[0].stage, 2);
  EXPECT_EQ(totals.middle()[0].calls, 2);
  EXPECT_DOUBLE_EQ(totals.middle()[0].seconds, 4);
}

/// Steps are thinned out evenly: those of the whole run count.
TEST(StepTotals, LongRunsTakeLittleMemory) {
  StepTotals totals(0);
  std::vector<double> steps(100000);
  for (size_t i = 0; i < steps.size(); ++i)
    steps[i] = 1 + static_cast<double>(i);
  run(totals, steps, 1);
  EXPECT_NEAR(meanForward(totals), 50000, 500);
  EXPECT_LE(totals.middle()[0].calls, 1024);
}

/// Clearing gradients is work of a step, but no bar of its timeline.
TEST(Recorder, ClearingIsInTheTotalsAlone) {
  Recorder recorder;
  recorder.keep(0, 1, 8);
  recorder.add({'Z', 0, 0, -1, 1, 3}, 2);
  EXPECT_TRUE(recorder.events.empty());
  EXPECT_EQ(recorder.dropped, 0);
  EXPECT_DOUBLE_EQ(recorder.busy, 2);
  EXPECT_EQ(recorder.totals.middle().at(0).kind, 'Z');
}

/// One checkpoint or hiccup does not change what a step is said to take; of a
/// stream's bursts only the mean says anything.
TEST(Results, TheUsualStepIsTheMedian) {
  plan::Plan plan;
  plan.strategy.update = "step";
  EXPECT_EQ(usualStep(plan, {}), 0);
  EXPECT_EQ(usualStep(plan, {7}), 7);
  EXPECT_EQ(usualStep(plan, {90, 2, 50, 3}), 3);
  plan.strategy.update = "round";
  EXPECT_EQ(usualStep(plan, {90, 1, 1, 7}), 3);
}

/// Where the middle half of the warm steps lies; of a few nothing is said.
TEST(Results, HowFarStepsWereApart) {
  plan::Plan plan;
  plan.strategy.update = "step";
  Results results;
  results.seconds = {90, 8, 1, 7, 2, 6, 3, 5, 4};
  report::MeasuredRun run = measured(plan, results);
  EXPECT_EQ(run.quick_step_s, 3);
  EXPECT_EQ(run.slow_step_s, 6);
  results.seconds.pop_back();
  EXPECT_EQ(measured(plan, results).slow_step_s, 0);
  plan.strategy.update = "round";
  results.seconds.assign(20, 1);
  EXPECT_EQ(measured(plan, results).slow_step_s, 0);
}
