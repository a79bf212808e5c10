//===- PlanningTest.cpp - what a model's plan may not depend on -----------===//
#include "compiler/driver/Planning.h"
#include "support/Failure.h"
#include "test/unit/plan/RandomGraphs.h"

#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::plan::test;

namespace {

CompileOptions automatic(int microbatches) {
  CompileOptions options;
  options.cpus = "1"; // the topology is given
  options.microbatches = microbatches;
  options.quiet = true;
  return options;
}

} // namespace

/// Many plans are tried where memory is short: each is searched for with a
/// sixteenth of the effort.
TEST(Planning, TrialsTakeASixteenthOfTheSearch) {
  Random random(1);
  const plan::CostGraph graph = randomGraph(random, 6);
  CompileOptions options = automatic(4);
  options.strategy = "1f1b";
  const ModelFacts facts{oneServer(2, 1e9, 0), 1, 1};
  EXPECT_EQ(decide(options, graph, facts).request.effort, 1);
  options.quick = true;
  EXPECT_EQ(decide(options, graph, facts).request.effort, 1.0 / 16);
}

/// A refusal of a request names what could be given instead.
TEST(Planning, RefusalsSayWhatToGiveInstead) {
  Random random(1);
  const plan::CostGraph graph = randomGraph(random, 6);
  CompileOptions options = automatic(4);
  options.strategy = "1f1b", options.stages = "3";
  try {
    decide(options, graph, {oneServer(2, 1e9, 0), 1, 1});
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Usage);
    EXPECT_STREQ(failure.what(),
                 "3 stages need 3 devices; the cluster has 2: give fewer "
                 "--stages, or more devices");
  }
}

/// Users know strategies, not the schedules behind them: "searched" is one
/// whose schedule is called auto, and an order that is found for it as well.
TEST(Planning, StrategiesHaveTheirOwnNames) {
  Random random(1);
  const plan::CostGraph graph = randomGraph(random, 6);
  for (const char *name : {"searched", "zb", "gpipe-recompute", "1f1b"}) {
    CompileOptions options = automatic(4);
    options.strategy = name;
    const Decision made = decide(options, graph, {oneServer(2, 1e9, 0), 1, 1});
    EXPECT_EQ(made.request.strategy.name, name);
  }
}
