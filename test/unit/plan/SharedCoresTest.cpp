#include "compiler/schedule/SharedCores.h"
#include "RandomGraphs.h"
#include "compiler/schedule/Generator.h"

#include <gtest/gtest.h>

#include "compiler/plan/PlanVerifier.h"
#include "support/Failure.h"

#include <algorithm>
#include <tuple>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

schedule::Schedule order(const char *name, int devices, int microbatches) {
  schedule::ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  return schedule::generate(name, request);
}

schedule::Costs randomCosts(Random &random, int stages) {
  schedule::Costs costs;
  for (int s = 0; s < stages; ++s) {
    costs.forward.push_back(random.real(0.5, 2));
    costs.backwardInput.push_back(random.real(0.5, 2));
    costs.backwardWeight.push_back(random.real(0.5, 2));
  }
  costs.comm = {0.1};
  costs.memoryForward.assign(stages, 1);
  costs.memoryInput.assign(stages, 0);
  costs.memoryWeight.assign(stages, -1);
  return costs;
}

schedule::CoreSharing oneServerOf(int devices, int cores) {
  schedule::CoreSharing sharing;
  for (int d = 0; d < devices; ++d) {
    sharing.shares.push_back({{d % cores, 1}});
    sharing.cores[d % cores] = 1;
  }
  return sharing;
}

} // namespace

/// A core for each device: the times are the plain simulator's.
TEST(SharedCores, EnoughCoresChangeNothing) {
  Random random(3);
  for (const char *name : {"gpipe", "1f1b", "zb-h1", "zb-v"})
    for (int devices : {1, 2, 4}) {
      schedule::Schedule s = order(name, devices, 2 * devices);
      schedule::Costs costs = randomCosts(random, s.stages);
      schedule::Timeline plain = simulate(s, costs);
      auto shared = simulateShared(s, costs, oneServerOf(devices, devices));
      EXPECT_NEAR(shared.line.makespan, plain.makespan, 1e-9) << name;
      for (int d = 0; d < devices; ++d)
        for (size_t i = 0; i < s.order[d].size(); ++i)
          EXPECT_NEAR(shared.line.end[d][i], plain.end[d][i], 1e-9) << name;
      EXPECT_EQ(shared.line.peak, plain.peak);
    }
}

/// The same for steps that follow each other without a barrier.
TEST(SharedCores, StepsWithoutABarrier) {
  Random random(5);
  for (const char *name : {"zb-h1", "zb-h2", "zb-v"})
    for (double latency : {0.0, 0.3, 5.0}) {
      schedule::Schedule s = order(name, 4, 9);
      schedule::Costs costs = randomCosts(random, s.stages);
      std::vector<double> tail{0.5, 0.25, 1, 0.75};
      schedule::Handover handover{std::vector<double>(4, 0),
                                  schedule::forwardsAhead(s), latency};
      auto shared = simulateShared(s, costs, oneServerOf(4, 4), tail,
                                   {3, handover.ahead, latency});
      schedule::SimulateOptions options;
      for (int step = 0; step < 3; ++step) {
        schedule::Timeline line = simulate(s, costs, options);
        double norm = 0, last = 0;
        for (int d = 0; d < 4; ++d) {
          norm = std::max(line.end[d].back(), d ? norm + latency : 0);
          handover.release[d] = norm + tail[d];
          last = std::max(last, handover.release[d]);
        }
        EXPECT_NEAR(shared.finish[step], last, 1e-9) << name << latency;
        options.after = &handover;
      }
    }
}

/// With one core nothing ever waits but for the work itself, so that the order
/// does not matter; with fewer cores no step gets shorter, nor slower than the
/// cores that are missing, nor than the work of the fullest of them.
TEST(SharedCores, OneCoreDoesAllTheWork) {
  Random random(4);
  for (const char *name : {"gpipe", "1f1b", "zb-h1"}) {
    schedule::Schedule s = order(name, 4, 8);
    schedule::Costs costs = randomCosts(random, s.stages);
    costs.comm = {0};
    double work = 0, path = simulate(s, costs).makespan;
    for (int d = 0; d < s.devices(); ++d)
      for (const schedule::Action &a : s.order[d])
        work += costs.time(a.kind, a.stage, d);
    std::vector<double> tail(4, 0.5);
    auto one = simulateShared(s, costs, oneServerOf(4, 1), tail);
    EXPECT_NEAR(one.finish[0], work + 2, 1e-9) << name;
    auto two = simulateShared(s, costs, oneServerOf(4, 2));
    double fullest[2] = {0, 0};
    for (int d = 0; d < s.devices(); ++d)
      for (const schedule::Action &a : s.order[d])
        fullest[d % 2] += costs.time(a.kind, a.stage, d);
    EXPECT_GE(two.finish[0], std::max({path, fullest[0], fullest[1]}) - 1e-9)
        << name;
    EXPECT_LE(two.finish[0], path + work + 1e-9) << name;
    EXPECT_LT(two.finish[0], one.finish[0]) << name;
  }
}

/// Two ranks of one core, in milliseconds: a short forward waits until the long
/// backward that has the core is done, and a long one makes way after 3.
///   0 |F0F0F1F1----------B0..
///   1 |----==F0F0B0B0F1F1....
TEST(SharedCores, OneComputesAtATime) {
  schedule::Schedule s = order("gpipe", 2, 2);
  schedule::Costs costs;
  costs.forward = {1e-3, 1e-3}, costs.backwardInput = {1e-3, 1e-3};
  costs.backwardWeight = {0, 0}, costs.comm = {0};
  costs.memoryForward = costs.memoryInput = costs.memoryWeight = {0, 0};
  auto line = simulateShared(s, costs, oneServerOf(2, 1)).line;
  // Rank 0 stands behind rank 1 when it has done its first forward.
  EXPECT_NEAR(line.end[0][0], 1e-3, 1e-12);
  EXPECT_NEAR(line.end[1][0], 3e-3, 1e-12);
  EXPECT_NEAR(line.end[0][1], 2e-3, 1e-12);
  // Ten milliseconds of one rank are no more than three in a row.
  costs.forward = {10e-3, 1e-3};
  line = simulateShared(s, costs, oneServerOf(2, 1)).line;
  EXPECT_NEAR(line.end[0][0], 10e-3, 1e-12);
  EXPECT_LT(line.end[1][0], 15e-3);
  EXPECT_NEAR(line.makespan, 26e-3, 1e-12);
}

/// Four ranks on two cores: the plan is slower than on four cores, but by less
/// than half, since idle ranks leave their core to others.
TEST(SharedCores, PlansKnowThatRanksTakeTurns) {
  PlanRequest r;
  r.graph = uniformChain(16, 1e-3, 0, 1000);
  r.topology = oneServer(4, 1e12, 0);
  r.strategy = strategyFacts("1f1b");
  r.microbatches = 4;
  r.replication = false;
  r.stages = 4;
  double apart = makePlan(r).stepSeconds;
  r.topology.cores = 2;
  PlanResult shared = makePlan(r);
  EXPECT_GT(shared.stepSeconds, 1.05 * apart);
  EXPECT_LT(shared.stepSeconds, 1.8 * apart);
  // No faster than the work of a step on two cores.
  EXPECT_GE(shared.stepSeconds, 16 * 3e-3 * 4 / 2);
  r.strategy = strategyFacts("dp");
  r.stages.reset();
  r.replication = true;
  EXPECT_NEAR(makePlan(r).stepSeconds, 16 * 3e-3 * 4 / 2, 1e-3);
}

/// Of equal pipelines one is simulated: the others' ranks have its cores, too,
/// whatever stages they are of. No step is faster than its work, and all ways
/// to share it out evenly are as fast.
TEST(SharedCores, PipelinesShareEachOthersCores) {
  for (auto [stages, replicas, cores] :
       {std::tuple(2, 3, 2), std::tuple(2, 2, 3), std::tuple(2, 4, 6),
        std::tuple(2, 3, 4), std::tuple(4, 2, 2), std::tuple(1, 3, 2)})
    for (const char *strategy : {"1f1b", "gpipe", "pipedream"}) {
      PlanRequest r;
      r.graph = uniformChain(8, 1e-3, 0, 0);
      r.topology = oneServer(stages * replicas, 1e12, 0);
      r.topology.cores = cores;
      r.strategy = strategyFacts(strategy);
      r.microbatches = r.strategy.synchronous ? 12 * replicas : 1;
      r.stages = stages;
      r.replicas.assign(static_cast<size_t>(stages), replicas);
      const PlanResult plan = makePlan(r);
      verifyPlan(r, plan);
      const double work = 8 * 3e-3 * r.microbatches / cores;
      EXPECT_GE(plan.stepSeconds, work * (1 - 1e-9))
          << stages << " x " << replicas << " on " << cores;
      PlanResult bad = plan;
      bad.stepSeconds = 0.99 * work;
      EXPECT_THROW(verifyPlan(r, bad), Failure);
    }
}
