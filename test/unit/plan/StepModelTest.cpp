#include "compiler/plan/StepModel.h"
#include "RandomGraphs.h"

#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

/// Two servers of two devices.
Topology twoServers() {
  Topology topology = oneServer(2, 1e9, 1e-6);
  topology.levels.insert(topology.levels.begin(), {"server", 2, 1e8, 1e-4});
  return topology;
}

Split splitOf(std::vector<size_t> starts, std::vector<int> replicas) {
  Split split;
  split.starts = std::move(starts);
  split.replicas = std::move(replicas);
  return split;
}

/// Neighbours differ in cuts alone, in replicas, in where pipelines are, or in
/// devices that are named.
std::vector<Split> splitsByTurns() {
  Split inside = splitOf({0, 4}, {2, 2}), across = splitOf({0, 4}, {2, 2}),
        named = splitOf({0, 2, 4, 6}, {1, 1, 1, 1});
  inside.pipelinesInside = true;
  named.devices = {{3}, {1}, {0}, {2}};
  return {splitOf({0, 2, 4, 6}, {1, 1, 1, 1}),
          splitOf({0, 2, 5, 6}, {1, 1, 1, 1}),
          named,
          splitOf({0, 2, 4, 6}, {1, 1, 1, 1}),
          across,
          inside,
          splitOf({0, 3}, {1, 3}),
          across};
}

} // namespace

/// A model keeps what it has found of the last split's devices: whoever is
/// asked about many splits by turns says what a new one says of each.
TEST(StepModel, WhatIsKeptIsOfTheSplitThatIsAskedFor) {
  for (const int cores : {0, 1})
    for (const char *strategy : {"1f1b", "gpipe", "pipedream"}) {
      PlanRequest r;
      r.graph = uniformChain(8, 1e-3, 100'000, 100'000);
      r.topology = twoServers();
      r.topology.cores = cores;
      r.strategy = strategyFacts(strategy);
      r.microbatches = 12;
      const IntervalCosts costs(r.graph);
      const StepModel kept(r, costs);
      std::vector<double> seconds;
      for (const Split &split : splitsByTurns()) {
        const StepModel fresh(r, costs);
        seconds.push_back(fresh.stepSeconds(split));
        EXPECT_EQ(kept.stepSeconds(split), seconds.back())
            << strategy << ", " << cores << ", " << seconds.size();
        EXPECT_EQ(kept.peakOf(split), fresh.peakOf(split));
      }
      // Or nothing was to be seen.
      EXPECT_NE(seconds[0], seconds[1]);
      EXPECT_NE(seconds[4], seconds[5]);
      EXPECT_NE(seconds[5], seconds[6]);
    }
}
