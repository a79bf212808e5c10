// Times, memory and bubbles of known schedules against their closed forms.
#include "compiler/schedule/Simulator.h"
#include "compiler/schedule/Csv.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Verifier.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace pipec;
using namespace pipec::schedule;

namespace {

ScheduleRequest sizes(int devices, int microbatches) {
  ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  return request;
}

Timeline run(const char *name, const ScheduleRequest &request,
             const SimulateOptions &options = {}) {
  Schedule schedule = generate(name, request);
  return simulate(schedule, costsFor(schedule, request), options);
}

TEST(Simulator, ClosedFormsOfFlushingSchedules) {
  for (int p : {1, 2, 4, 7})
    for (int m : {1, 3, 8, 21}) {
      ScheduleRequest request = sizes(p, m);
      // F=1, B+W=2: GPipe and 1F1B take (m+p-1)*3, naive takes m*p*3.
      EXPECT_DOUBLE_EQ(run("gpipe", request).makespan, (m + p - 1) * 3);
      EXPECT_DOUBLE_EQ(run("1f1b", request).makespan, (m + p - 1) * 3);
      EXPECT_DOUBLE_EQ(run("naive", request).makespan, m * p * 3);
      EXPECT_DOUBLE_EQ(run("gpipe", request).maxPeak(), m);
      Timeline line = run("1f1b", request);
      for (int d = 0; d < p; ++d)
        EXPECT_DOUBLE_EQ(line.peak[d], std::min(p - d, m));
      EXPECT_DOUBLE_EQ(line.bubbleOverIdeal(), (p - 1.0) / m);
      EXPECT_DOUBLE_EQ(line.bubbleMakespan(), (p - 1.0) / (m + p - 1));
    }
}

TEST(Simulator, WarmupHidesLatency) {
  // Fan et al. (DAPPLE): the warm-up decides what latency costs. P=8, M=32,
  // F=1, B=2, by exact execution.
  const double comm[] = {0, 0.25, 0.5, 1};
  const double early[] = {117, 134, 151, 185}, late[] = {117, 120.5, 124, 131};
  for (int i = 0; i < 4; ++i) {
    ScheduleRequest request = sizes(8, 32);
    request.costs.comm = {comm[i]};
    Timeline line = run("1f1b", request);
    EXPECT_DOUBLE_EQ(line.makespan, early[i]);
    EXPECT_DOUBLE_EQ(line.maxPeak(), 8);
    for (int d = 0; d < 8; ++d)
      request.warmup.push_back(std::min(2 * (8 - d) - 1, 32));
    line = run("1f1b", request);
    EXPECT_DOUBLE_EQ(line.makespan, late[i]);
    EXPECT_DOUBLE_EQ(line.maxPeak(), 15);
  }
}

TEST(Simulator, MemoryAfterEveryAction) {
  ScheduleRequest request = sizes(2, 2);
  request.costs.memoryForward = {3, 5};
  request.costs.memoryInput = {-1, -2};
  request.costs.memoryWeight = {-2, -3};
  Timeline line = run("1f1b", request);
  EXPECT_EQ(line.memory[0], (std::vector<double>{3, 6, 3, 0}));
  EXPECT_EQ(line.memory[1], (std::vector<double>{5, 0, 5, 0}));
  EXPECT_EQ(line.peak, (std::vector<double>{6, 5}));
}

TEST(Simulator, HeterogeneousDevicesAndLinks) {
  ScheduleRequest request = sizes(3, 1);
  request.costs.forward = {1, 2, 4};
  request.costs.backwardInput = {8, 16, 32};
  request.costs.backwardWeight = {0, 0, 0};
  request.costs.comm = {0.5, 0.25};
  Timeline line = run("1f1b", request);
  // 1 +.5+ 2 +.25+ 4 + 32 +.25+ 16 +.5+ 8
  EXPECT_DOUBLE_EQ(line.makespan, 64.5);
  EXPECT_DOUBLE_EQ(line.work, 36);
  request.costs.comm.clear();
  request.costs.link = {{0, 1, 9}, {2, 0, 3}, {9, 4, 0}};
  EXPECT_DOUBLE_EQ(run("1f1b", request).makespan, 63 + 1 + 3 + 4 + 2);
}

TEST(Simulator, CopiesTakeTheirOwnDevicesTime) {
  // Two whole models: the second device is three times as slow and keeps
  // twice as much.
  ScheduleRequest request = sizes(2, 4);
  request.costs.forward = {1, 3};
  request.costs.backwardInput = {1, 3};
  request.costs.backwardWeight = {1, 3};
  request.costs.memoryForward = {1, 2};
  request.costs.memoryWeight = {-1, -2};
  Timeline dp = run("dp", request);
  EXPECT_DOUBLE_EQ(dp.busy[0], 2 * 3 * 1);
  EXPECT_DOUBLE_EQ(dp.busy[1], 2 * 3 * 3);
  EXPECT_EQ(dp.peak, (std::vector<double>{1, 2}));
  // One microbatch at a time, both ways: each device runs all its tasks alone.
  Timeline gems = run("gems", request);
  EXPECT_DOUBLE_EQ(gems.busy[0], 4 * 3 * 1);
  EXPECT_DOUBLE_EQ(gems.busy[1], 4 * 3 * 3);
  // A device that nothing is left for still has its links.
  ScheduleRequest idle = sizes(3, 2);
  idle.costs.forward = {1, 2, 3};
  idle.costs.comm = {0.5, 0.5};
  Schedule two = generate("dp", idle);
  Costs costsOfTwo = costsFor(two, idle);
  check(costsOfTwo, two.stages, two.devices());
  EXPECT_EQ(costsOfTwo.linkDelay.size(), 3u);
  // Limits are checked against the same figures.
  request.costs.limit = {1, 1.5};
  Schedule schedule = generate("dp", request);
  Costs costs = costsFor(schedule, request);
  VerifyOptions options;
  options.costs = &costs;
  auto violations = verify(schedule, options);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, Rule::Memory);
  EXPECT_EQ(violations[0].device, 1);
}

TEST(Simulator, LinkOccupancyQueuesTransfers) {
  // Stage 0 makes an activation each time unit; each takes 3 on the link.
  ScheduleRequest request = sizes(2, 4);
  request.costs.comm = {3};
  Timeline free = run("gpipe", request);
  SimulateOptions options;
  options.linkOccupancy = true;
  Timeline busy = run("gpipe", request, options);
  EXPECT_DOUBLE_EQ(free.start[1][3], 7);
  EXPECT_DOUBLE_EQ(busy.start[1][3], 13); // 1 + 4 transfers of 3
}

TEST(Simulator, SendsWaitForRoom) {
  // Naive, 2 devices, 3 microbatches: with room for one message nobody waits.
  ScheduleRequest request = sizes(2, 3);
  SimulateOptions bounded;
  bounded.buffers = 1;
  EXPECT_DOUBLE_EQ(run("naive", request, bounded).makespan,
                   run("naive", request).makespan);
  // GPipe with a slow consumer, which takes forward k at 1 + 10k. The first
  // message is taken at once, the second lies in the channel, the third keeps
  // device 0 waiting until device 1 takes the second at 11.
  request.microbatches = 4;
  request.costs.forward = {1, 10};
  Timeline line = run("gpipe", request, bounded);
  EXPECT_EQ(line.start[0][1], 1);
  EXPECT_EQ(line.start[0][2], 2);
  EXPECT_EQ(line.start[0][3], 11);
  // A rendezvous: the second send already waits.
  SimulateOptions rendezvous;
  rendezvous.buffers = 0;
  line = run("gpipe", request, rendezvous);
  EXPECT_EQ(line.start[0][1], 1);
  EXPECT_EQ(line.start[0][2], 11);
  EXPECT_EQ(line.start[0][3], 21);
}

TEST(Simulator, PairsRunTogether) {
  // Published bubbles (DeepSeek-AI), in time: (P/2-1)(F&B + B - 3W) and, per
  // chunk, (P-1)(F&B + B - 3W); F&B = 3, B = 2.
  SimulateOptions fused;
  fused.fusePairs = true;
  for (int p : {4, 8, 16})
    for (int m : {2 * p, 4 * p}) {
      Timeline line = run("dualpipe", sizes(p, m), fused);
      EXPECT_DOUBLE_EQ(line.makespan, 3 * m + 2 * (p / 2 - 1)) << p;
      EXPECT_DOUBLE_EQ(line.maxPeak(), p + 1) << p;
      line = run("dualpipe-v", sizes(p, m), fused);
      EXPECT_DOUBLE_EQ(line.makespan, 3 * m + p - 1) << p;
      EXPECT_DOUBLE_EQ(line.maxPeak(), p + 0.5) << p;
    }
  // A pair waits for both inputs, and both outputs leave at its end: device 0's
  // forward 1 could start at 1 but for 0B0, which comes at 4.
  Schedule schedule =
      readCsv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n", "s.csv");
  Timeline apart = simulate(schedule, expand(UniformCosts{}, 2, 1));
  EXPECT_EQ(apart.start[0], (std::vector<double>{0, 1, 4, 7}));
  EXPECT_EQ(apart.start[1], (std::vector<double>{1, 2, 4, 5}));
  Timeline together = simulate(schedule, expand(UniformCosts{}, 2, 1), fused);
  EXPECT_EQ(together.start[0], (std::vector<double>{0, 4, 5, 10}));
  EXPECT_EQ(together.start[1], (std::vector<double>{1, 2, 7, 8}));
}

/// Steps that follow each other without a barrier.
std::vector<double> finishOf(const Schedule &schedule, const Costs &costs,
                             int steps, double update, double latency) {
  Handover handover{std::vector<double>(schedule.devices(), 0),
                    forwardsAhead(schedule), latency};
  SimulateOptions options;
  std::vector<double> finish;
  for (int step = 0; step < steps; ++step) {
    Timeline line = simulate(schedule, costs, options);
    double norm = 0;
    for (int d = 0; d < schedule.devices(); ++d) {
      norm = std::max(line.end[d].back(), d ? norm + latency : 0);
      handover.release[d] = norm + update;
    }
    finish.push_back(
        *std::max_element(handover.release.begin(), handover.release.end()));
    options.after = &handover;
  }
  return finish;
}

TEST(Simulator, StepsWithoutABarrier) {
  // ZB-H2 has no bubble in its span: steps follow each other every M(F+I+W),
  // although one takes P-1 longer.
  for (int p : {2, 4, 8})
    for (int m : {2 * p - 1, 4 * p}) {
      Schedule schedule = generate("zb-h2", sizes(p, m));
      Costs costs = costsFor(schedule, sizes(p, m));
      EXPECT_EQ(forwardsAhead(schedule).back(), 0);
      EXPECT_EQ(forwardsAhead(schedule)[0], std::min(2 * p - 1, m));
      auto finish = finishOf(schedule, costs, 3, 0.25, 0);
      EXPECT_DOUBLE_EQ(finish[0], 3 * m + p - 1 + 0.25);
      EXPECT_DOUBLE_EQ(finish[1] - finish[0], 3 * m + 0.25) << p;
      EXPECT_DOUBLE_EQ(finish[2] - finish[1], 3 * m + 0.25) << p;
    }
  // GPipe: device 0 ends last, so that nothing overlaps; the norm's way to the
  // others is hidden behind its first forwards.
  Schedule schedule = generate("gpipe", sizes(4, 8));
  Costs costs = costsFor(schedule, sizes(4, 8));
  auto finish = finishOf(schedule, costs, 3, 0, 0.5);
  EXPECT_DOUBLE_EQ(finish[0], 33 + 1.5);
  EXPECT_DOUBLE_EQ(finish[2] - finish[1], 33);
  // A norm and a verdict that take long hold all up: three hops each, then
  // device 0's backwards.
  auto late = finishOf(schedule, costs, 3, 0, 40);
  EXPECT_DOUBLE_EQ(late[2] - late[1], 3 * 40 + 3 * 40 + 16);
}

TEST(Simulator, NamesTheDeviceOfADeadlock) {
  Schedule schedule = generate("1f1b", sizes(2, 2));
  std::swap(schedule.order[1][0], schedule.order[1][2]); // 1F1 before 1F0
  std::swap(schedule.order[0][1], schedule.order[0][2]); // 0B0 before 0F1
  try {
    simulate(schedule, expand(UniformCosts{}, 2, 1));
    FAIL() << "no deadlock seen";
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::BadPlan);
    EXPECT_STREQ(failure.what(), "1f1b: device 0 waits for ever at 0B0");
  }
}

} // namespace
