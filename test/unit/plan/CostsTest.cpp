#include "RandomGraphs.h"
#include "compiler/plan/Calibration.h"
#include "compiler/plan/IntervalCosts.h"
#include "compiler/plan/WhatIf.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

/// Samples of a device that is known, with `noise` relative error.
std::vector<CalibrationSample> samplesOf(const DeviceModel &device,
                                         double noise) {
  Random random(61);
  std::vector<CalibrationSample> samples;
  auto add = [&](OpKind kind, DType dtype, double flops, double bytes) {
    double seconds = opSeconds(device, flops, bytes, kind, dtype);
    samples.push_back({kind, dtype, flops, bytes,
                       seconds * random.real(1 - noise, 1 + noise)});
  };
  for (double bytes = 1e5; bytes < 1e9; bytes *= 4)
    add(OpKind::Copy, DType::F32, 0, bytes);
  for (double n = 128; n <= 4096; n *= 2) {
    add(OpKind::MatMul, DType::F32, 2 * n * n * n, 12 * n * n);
    add(OpKind::MatMul, DType::BF16, 2 * n * n * n, 6 * n * n);
    add(OpKind::Convolution, DType::F32, 2 * n * n * n, 2 * n * n);
  }
  return samples;
}

} // namespace

TEST(Calibration, RecoversTheDeviceThatWasMeasured) {
  DeviceModel truth = deviceModel("a100-80g");
  // A peak is what was reached over the share that the start's row says.
  truth.matmulEfficiency = deviceModel("h100-sxm").matmulEfficiency;
  truth.memoryBandwidth = 1.1e12;
  truth.flopsF32 = 12e12;
  truth.flopsBF16 = 200e12;
  truth.launchSeconds = 7e-6;
  truth.convolutionEfficiency = 0.4;
  truth.convolutionSeconds = 150e-6;
  truth.halfEfficiencyFlops = 90e6;
  DeviceModel start = deviceModel("h100-sxm");
  DeviceModel exact = fitDevice(start, samplesOf(truth, 0));
  EXPECT_NEAR(exact.memoryBandwidth, truth.memoryBandwidth,
              1e-6 * truth.memoryBandwidth);
  EXPECT_NEAR(exact.launchSeconds, truth.launchSeconds, 1e-9);
  EXPECT_NEAR(exact.flopsF32, truth.flopsF32, 0.01 * truth.flopsF32);
  EXPECT_NEAR(exact.flopsBF16, truth.flopsBF16, 0.02 * truth.flopsBF16);
  EXPECT_NEAR(exact.convolutionEfficiency, 0.4, 0.01);
  EXPECT_NEAR(exact.convolutionSeconds, 150e-6, 10e-6);
  EXPECT_LT(calibrationError(exact, samplesOf(truth, 0)).largest, 0.05);
  // A few percent of noise stays a few percent; before, the model was far off.
  auto noisy = samplesOf(truth, 0.05);
  EXPECT_LT(calibrationError(fitDevice(start, noisy), noisy).mean, 0.06);
  EXPECT_GT(calibrationError(start, noisy).mean, 0.3);
  // What was not measured stays.
  EXPECT_EQ(exact.flopsF16, start.flopsF16);
  EXPECT_EQ(exact.memoryBytes, start.memoryBytes);
}

/// Another program ran while the small one was copied: nothing is learnt.
TEST(Calibration, CopiesThatTakeLessTheLargerTheyAreSayNothing) {
  const DeviceModel d = deviceModel("cpu");
  const DeviceModel fitted =
      fitDevice(d, {{OpKind::Copy, DType::F32, 0, 1e6, 1.0e-3},
                    {OpKind::Copy, DType::F32, 0, 64e6, 0.9e-3}});
  EXPECT_EQ(fitted.launchSeconds, d.launchSeconds);
  EXPECT_EQ(fitted.memoryBandwidth, d.memoryBandwidth);
}

TEST(Calibration, RefusesNonsense) {
  DeviceModel d = deviceModel("cpu");
  EXPECT_THROW(fitDevice(d, {{OpKind::Copy, DType::F32, 0, 1e6, 0}}), Failure);
  EXPECT_THROW(fitDevice(d, {{OpKind::Copy, DType::F32, 0, 1e6, 1e-3},
                             {OpKind::Copy, DType::F32, 0, 1e6, 1e-3}}),
               Failure);
}

namespace {

std::vector<KernelSample> productSamples(const DeviceModel &truth, int count,
                                         double noise) {
  Random random(62);
  std::vector<KernelSample> samples;
  for (int i = 0; i < count; ++i) {
    ProductShape s;
    s.batch = random.between(0, 1) ? 1 : random.between(2, 32);
    s.m = random.between(1, 300), s.n = random.between(1, 300);
    s.k = random.between(1, 600);
    s.transposeA = random.between(0, 1), s.transposeB = random.between(0, 1);
    const KernelWork work = productWork(s, {});
    samples.push_back({work, *kernelSeconds(truth, work) *
                                 random.real(1 - noise, 1 + noise)});
  }
  return samples;
}

} // namespace

/// Costs are found again, also those of threads; shapes that were not timed are
/// then predicted.
TEST(Calibration, RoutinesOfManyShapes) {
  DeviceModel truth = deviceModel("cpu");
  truth.kernels["product"] = {50e-9,   20e-9,  0.2e-9,  0.1e-9,  0.4e-9,
                              15e-9,   1e-9,   0.05e-9, 0.03e-9, 0.2e-9,
                              0.25e-9, 0.3e-9, 0.1e-9};
  truth.forkSeconds = 2e-6, truth.forkEfficiency = 0.9;
  DeviceModel two = truth;
  two.threads = 2;
  DeviceModel fitted = deviceModel("cpu");
  EXPECT_FALSE(kernelSeconds(fitted, productWork({1, 8, 8, 8}, {})));
  fitted.threads = 2;
  fitKernels(fitted, productSamples(truth, 400, 0.2),
             productSamples(two, 100, 0.2));
  EXPECT_NEAR(fitted.forkEfficiency, 0.9, 0.1);
  auto unseen = productSamples(two, 600, 0);
  unseen.erase(unseen.begin(), unseen.begin() + 400);
  const KernelError error = kernelErrors(fitted, unseen).at("product");
  EXPECT_EQ(error.samples, 200);
  EXPECT_LT(error.mean, 0.06);
  EXPECT_NEAR(error.total, 1, 0.05);
  for (double cost : fitted.kernels.at("product"))
    EXPECT_GE(cost, 0);
  // Products of bf16 take as long where they were not timed.
  const ProductShape narrow{1, 64, 64, 64, false, false, true};
  ProductShape wide = narrow;
  wide.bf16 = false;
  EXPECT_EQ(kernelSeconds(fitted, productWork(narrow, {})),
            kernelSeconds(fitted, productWork(wide, {})));
  fitted.kernels["product-bf16"] = std::vector<double>(13, 1e-9);
  EXPECT_NE(kernelSeconds(fitted, productWork(narrow, {})),
            kernelSeconds(fitted, productWork(wide, {})));
  // Too few shapes say nothing; a time of 0 is refused.
  DeviceModel few = deviceModel("cpu");
  fitKernels(few, productSamples(truth, 20, 0), {});
  EXPECT_TRUE(few.kernels.empty());
  EXPECT_THROW(fitKernels(few, {{productWork({1, 8, 8, 8}, {}), 0}}, {}),
               Failure);
}

TEST(Calibration, WorkFollowsTheShape) {
  auto amount = [](const KernelWork &work, const std::string &name) {
    const auto &names = kernelAmounts().at(work.kernel);
    EXPECT_EQ(names.size(), work.amounts.size());
    return work.amounts.at(std::find(names.begin(), names.end(), name) -
                           names.begin());
  };
  // 12 rows are 3 tiles of 4, 48 columns 6 vectors in 2 panels; 64 steps of a
  // small product go in 4 blocks.
  const KernelWork small = productWork({2, 12, 48, 64}, {});
  EXPECT_EQ(amount(small, "step"), 2 * 12 * 6 * 64);
  EXPECT_EQ(amount(small, "operand"), 2 * 3 * 2 * (4 + 3) * 64);
  EXPECT_EQ(amount(small, "round"), 2 * 3 * 2 * 64);
  EXPECT_EQ(amount(small, "tile"), 2 * 3 * 2 * 4);
  EXPECT_EQ(amount(small, "edge"), 0);
  EXPECT_EQ(amount(small, "columns in place"), 2 * 48 * 64);
  EXPECT_TRUE(small.divides);
  // A large one in as few as the cache allows; a last vector of 2 of 8.
  const KernelWork large = productWork({1, 512, 1026, 768, true, true}, {});
  EXPECT_EQ(amount(large, "tile"), 128 * 43 * 2);
  EXPECT_EQ(amount(large, "edge"), 512 * (3 * 8 - 8 + 2) * 2);
  EXPECT_EQ(amount(large, "rows turned"), 512 * 768);
  EXPECT_FALSE(productWork({1, 8, 8, 8}, {}).divides);
  // In tiles of 8 rows and vectors of 16: 12 rows are 8 and 4, 4 vectors two
  // panels of two.
  const KernelWork wide = productWork({1, 12, 64, 32}, {8, 16, 3});
  EXPECT_EQ(amount(wide, "step"), 12 * 4 * 32);
  EXPECT_EQ(amount(wide, "operand"), 2 * ((8 + 2) + (4 + 2)) * 32);
  EXPECT_EQ(amount(wide, "round"), 4 * 32);
}

/// A line of 40 windows of 3 x 3, one of which meets the border on either side:
/// in vectors of 16 the others take three.
TEST(Calibration, MaximumPoolsByTheirWindows) {
  const auto &names = kernelAmounts().at("max-pool");
  const KernelWork work = poolWork({2, 80, 80 * 9 * 3, 0, 160, 1440, true});
  ASSERT_EQ(names.size(), work.amounts.size());
  EXPECT_EQ(names[2], "line");
  EXPECT_EQ(work.amounts[2], 80);
  EXPECT_EQ(names[6], "border");
  EXPECT_EQ(work.amounts[6], 1440);
  EXPECT_TRUE(work.divides);
}

/// Tasks whose products take a third more than alone, whose generated kernels
/// cost 0.2 us more a call, and which cost 0.7 us each.
TEST(Calibration, TasksRaiseWhatTheirCallsCost) {
  DeviceModel d;
  d.kernels["product"] = std::vector<double>(13, 1e-9);
  d.kernels["generated"] = std::vector<double>(11, 2e-9);
  d.kernels["gather"] = {1e-7, 1e-9, 1e-9};
  d.farKernels = d.kernels;
  const std::vector<double> gather = d.kernels["gather"];
  std::vector<TaskSample> tasks;
  for (int i = 1; i < 30; ++i) {
    TaskSample task;
    task.seconds = 0.7e-6;
    for (int k = 0; k < i % 7 && i % 4; ++k) {
      task.calls.push_back({productWork({1, 8 * i, 16, 32}, {})});
      task.seconds += 4.0 / 3 * *kernelSeconds(d, task.calls.back().work);
    }
    for (int k = 0; k < i % 5 && i % 4; ++k) {
      InstructionCounts counts;
      counts.rounds = counts.vectors = 100 * i;
      task.calls.push_back({generatedWork(counts, false)});
      task.seconds += 0.2e-6 + *kernelSeconds(d, task.calls.back().work);
    }
    tasks.push_back(std::move(task));
  }
  EXPECT_GT(taskErrors(d, tasks).mean, 0.2);
  fitTasks(d, tasks);
  const KernelError error = taskErrors(d, tasks);
  EXPECT_EQ(error.samples, 29);
  EXPECT_LT(error.mean, 0.03);
  EXPECT_NEAR(d.taskSeconds, 0.7e-6, 0.1e-6);
  EXPECT_EQ(d.kernels["gather"], gather); // nothing is said of it
  EXPECT_EQ(d.kernels["product"], d.farKernels["product"]);
  tasks.front().seconds = 0;
  EXPECT_THROW(fitTasks(d, tasks), Failure);
}

/// On two threads a task that divides anything takes 4 us more, each loop 1 us,
/// and a quarter of the threads' time is lost.
TEST(Calibration, TasksSayWhatThreadsCost) {
  DeviceModel d;
  d.threads = 2;
  d.taskSeconds = 0.5e-6;
  d.kernels["product"] = std::vector<double>(13, 1e-9);
  d.kernels["generated"] = std::vector<double>(11, 2e-9);
  DeviceModel single = d;
  single.threads = 1;
  std::vector<TaskSample> tasks;
  for (int i = 1; i < 20; ++i) {
    TaskSample task;
    InstructionCounts counts;
    counts.rounds = counts.vectors = 100 * i;
    task.calls = {{generatedWork(counts, false)}};
    task.seconds = 0.5e-6 + *kernelSeconds(single, task.calls[0].work);
    for (int k = 0; k < i % 4; ++k) {
      task.calls.push_back({productWork({1, 64 * i, 32, 64 + k}, {})});
      ASSERT_TRUE(task.calls.back().work.divides);
      const double alone = *kernelSeconds(single, task.calls.back().work);
      task.seconds += (k ? 0 : 4e-6) + 1e-6 + alone / (2 * 0.75);
    }
    tasks.push_back(std::move(task));
  }
  fitThreads(d, tasks);
  EXPECT_NEAR(d.wakeSeconds, 4e-6, 1e-8);
  EXPECT_NEAR(d.forkSeconds, 1e-6, 1e-8);
  EXPECT_NEAR(d.forkEfficiency, 0.75, 1e-3);
  EXPECT_LT(taskErrors(d, tasks).mean, 1e-3);
  EXPECT_DOUBLE_EQ(fixedSeconds(d, false), 0.5e-6);
  DeviceModel same = d;
  fitThreads(same, {});
  EXPECT_EQ(same.wakeSeconds, d.wakeSeconds); // nothing is said of it
}

/// Ranks share a loop where that is faster: what short ones take alone says
/// nothing of threads, and is never predicted as longer.
TEST(Calibration, ShortLoopsAreNotShared) {
  DeviceModel truth;
  truth.threads = 2;
  truth.kernels["product"] = std::vector<double>(13, 1e-9);
  DeviceModel found = truth, single = truth;
  single.threads = 1;
  truth.wakeSeconds = 3e-6, truth.forkSeconds = 20e-6;
  truth.forkEfficiency = 0.8;
  const KernelWork brief = productWork({1, 64, 16, 64}, {}),
                   large = productWork({1, 512, 64, 512}, {});
  ASSERT_TRUE(brief.divides && large.divides);
  EXPECT_FALSE(isShared(truth, brief));
  EXPECT_TRUE(isShared(truth, large));
  EXPECT_FALSE(isShared(single, large));
  EXPECT_EQ(*kernelSeconds(truth, brief), *kernelSeconds(single, brief));
  EXPECT_LT(*kernelSeconds(truth, large), *kernelSeconds(single, large));

  std::vector<TaskSample> tasks;
  for (int i = 0; i < 24; ++i) {
    TaskSample task;
    bool shares = false;
    for (int k = 0; k < 20 + i; ++k) {
      const bool isLarge = i % 4 > 0 && k < i % 4;
      const int64_t m = isLarge ? 64 * (4 + i) : 64 + i;
      task.calls.push_back({productWork({1, m, 8 + k, 16 + m / 2}, {})});
      task.seconds += *kernelSeconds(truth, task.calls.back().work);
      shares |= isShared(truth, task.calls.back().work);
    }
    task.seconds += fixedSeconds(truth, shares);
    tasks.push_back(std::move(task));
  }
  fitThreads(found, tasks);
  EXPECT_NEAR(found.forkSeconds, truth.forkSeconds, 0.1e-6);
  EXPECT_NEAR(found.forkEfficiency, truth.forkEfficiency, 0.01);
  EXPECT_NEAR(found.wakeSeconds, truth.wakeSeconds, 0.1e-6);
  EXPECT_LT(taskErrors(found, tasks).mean, 1e-3);
}

/// A round at another speed is told, a call that takes long is not.
TEST(Calibration, RoundsThatDifferAreTold) {
  const KernelWork work = productWork({1, 8, 8, 8}, {});
  std::vector<std::vector<KernelSample>> rounds(
      3, {{work, 1e-6}, {work, 4e-3}, {work, 2e-5}});
  EXPECT_EQ(unsteadyNote(rounds), "");
  rounds[1][1].seconds *= 1.2; // one of three calls
  EXPECT_EQ(unsteadyNote(rounds), "");
  for (KernelSample &sample : rounds[2])
    sample.seconds *= 1.5;
  EXPECT_EQ(unsteadyNote(rounds),
            "the same calls took 1.50 times as long in one round as in "
            "another: these cores are not equally fast all the time (the host "
            "of a virtual machine, a clock that moves), and steps will be as "
            "far from what is predicted; calibrate again at a quieter time");
  EXPECT_EQ(unsteadyNote({}), "");
}

/// In every stage once, beside what its nodes cost.
TEST(Costs, ATaskCostsSomethingBesideItsNodes) {
  CostGraph graph;
  graph.nodes.resize(3);
  for (CostNode &node : graph.nodes)
    node.forwardSeconds = 1, node.backwardInputSeconds = 2;
  graph.forwardTaskSeconds = 0.25, graph.backwardTaskSeconds = 0.5;
  const IntervalCosts costs(graph);
  EXPECT_DOUBLE_EQ(costs.cost(0, 2).forwardSeconds, 3.25);
  EXPECT_DOUBLE_EQ(costs.cost(1, 1).forwardSeconds, 1.25);
  EXPECT_DOUBLE_EQ(costs.cost(1, 2).backwardInputSeconds, 4.5);
}

/// What left a core's own cache costs more, the more of it there is.
TEST(Calibration, OperandsFarAwayCostMore) {
  DeviceModel d = deviceModel("cpu");
  d.kernels["gather"] = {0, 1e-9, 0};
  const KernelWork rows = gatherWork({100, 6400});
  EXPECT_DOUBLE_EQ(*kernelSeconds(d, rows, 1), 100e-9); // not known: as near
  d.farKernels["gather"] = {0, 3e-9, 0};
  EXPECT_DOUBLE_EQ(*kernelSeconds(d, rows), 100e-9);
  EXPECT_DOUBLE_EQ(*kernelSeconds(d, rows, 0.5), 200e-9);
  EXPECT_DOUBLE_EQ(*kernelSeconds(d, rows, 1), 300e-9);
  const std::vector<OperandUse> weight{{1000}};
  EXPECT_EQ(farShare(d, weight, 1e9, 1), 0); // of a cache of unknown size
  d.ownCacheBytes = 1e6;
  EXPECT_EQ(farShare(d, {}, 4e6, 1), 0);
  EXPECT_EQ(farShare(d, weight, 4e5, 1), 0);
  EXPECT_DOUBLE_EQ(farShare(d, weight, 1e6, 1), 0.5);
  EXPECT_EQ(farShare(d, weight, 4e6, 1), 1);
  // Three times as much was written by the call before.
  const std::vector<OperandUse> both{{1000}, {3000, 0}};
  EXPECT_DOUBLE_EQ(farShare(d, both, 4e6, 1), 0.25);
  // What two threads go through is in two caches.
  EXPECT_DOUBLE_EQ(farShare(d, {{1000, 2e6}}, 4e6, 1), 1);
  EXPECT_DOUBLE_EQ(farShare(d, {{1000, 2e6}}, 4e6, 2), 0.5);
}

/// 1F1B of 16 equal nodes on so many devices, without baselines.
static PlanRequest equalNodes(int devices) {
  PlanRequest r;
  r.graph = uniformChain(16, 1e-3, 1000, 1000);
  r.topology = oneServer(devices, 1e6, 1e-6);
  r.strategy = strategyFacts("1f1b");
  r.microbatches = 8;
  r.baselines = false;
  return r;
}

TEST(WhatIf, TableFollowsTheConditions) {
  PlanRequest r = equalNodes(4);
  r.memoryLimit = 30'000;
  const Replanned own = planAfresh(r);
  auto rows = whatIf(r, own, "devices,bandwidth,microbatches,memory");
  auto step = [&](const std::string &axis, const std::string &value) {
    auto it = std::find_if(rows.begin(), rows.end(), [&](const WhatIfRow &row) {
      return row.axis == axis && row.value == value;
    });
    EXPECT_NE(it, rows.end()) << axis << " " << value;
    return it == rows.end() || !it->fits ? -1.0 : it->stepSeconds;
  };
  EXPECT_LT(step("devices", "8"), own.result.stepSeconds);
  EXPECT_LT(step("bandwidth", "x10"), own.result.stepSeconds);
  EXPECT_GT(step("bandwidth", "x0.1"), own.result.stepSeconds);
  EXPECT_GT(step("microbatches", "16"), own.result.stepSeconds);
  EXPECT_LE(step("memory", "58.59 KiB"), own.result.stepSeconds * 1.02);
  // More of anything may be left unused: never a loss.
  PlanRequest alone = r; // one node cannot be divided
  alone.graph = uniformChain(1, 1e-3, 1000, 1000);
  alone.topology = oneServer(1, 1e6, 1e-6);
  alone.useAllDevices = true;
  const Replanned one = planAfresh(alone);
  for (const WhatIfRow &row : whatIf(alone, one, "devices,bandwidth,memory"))
    if (row.value == "2" || row.value == "4" || row.value == "x10") {
      EXPECT_TRUE(row.fits) << row.note;
      EXPECT_GE(row.samplesPerSecond, one.result.samplesPerSecond) << row.value;
    }
  // Two devices or half the memory are too little; the rows say why.
  for (const WhatIfRow &row : rows)
    if (!row.fits) {
      EXPECT_EQ(row.note.find("by the estimate needs about "), 0U) << row.note;
    }
  std::string table = whatIfTable(own, rows);
  Replanned same = own;
  same.result.samplesPerSecond *= 1 + 1e-9; // no loss of -0.0 %
  EXPECT_EQ(whatIfTable(same, {{"devices", "8", true, own.result.stepSeconds,
                                own.result.samplesPerSecond}})
                .find("-0.0%"),
            std::string::npos);
  EXPECT_NE(table.find("as asked"), std::string::npos);
  // Every column has a name, and bytes three digits as everywhere.
  const std::string one8 = whatIfTable(
      own, {{"devices", "8", true, 0.1, 10, "1f1b", "1", "", 12'345'678}});
  const std::string header = one8.substr(0, one8.find('\n'));
  for (const char *name :
       {"what if", " is ", "samples/s", " change ", " strategy "})
    EXPECT_NE(header.find(name), std::string::npos) << header;
  EXPECT_NE(one8.find(" 11.8 MiB "), std::string::npos) << one8;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'),
            static_cast<long>(rows.size()) + 2);
  EXPECT_THROW(whatIf(r, own, "weather"), Failure);
  EXPECT_THROW(whatIf(r, own, ""), Failure);
}

/// Other strategies stand in the order of their speed, those that do not fit
/// behind them with the reason.
TEST(WhatIf, StrategiesAreThereTheFastestFirst) {
  PlanRequest r = equalNodes(4);
  r.stages = 4;
  r.replication = false;
  const Replanned own = planAfresh(r);
  std::vector<Alternative> others;
  for (const char *name : {"naive", "gpipe", "zb-h1"})
    others.push_back({name, [r, name]() mutable {
                        r.strategy = strategyFacts(name);
                        if (std::string(name) == "gpipe")
                          r.memoryLimit = 1;
                        Replanned plan = planAfresh(r);
                        plan.isClose = true;
                        return plan;
                      }});
  EXPECT_TRUE(comparesStrategies("memory,strategies"));
  EXPECT_FALSE(comparesStrategies("memory"));
  const auto rows = whatIf(r, own, "strategies", others);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].value, "zb-h1");
  EXPECT_EQ(rows[1].value, "naive");
  EXPECT_LT(rows[0].stepSeconds, rows[1].stepSeconds);
  EXPECT_GT(rows[0].peakBytes, 0);
  EXPECT_EQ(rows[2].value, "gpipe");
  EXPECT_FALSE(rows[2].fits);
  EXPECT_EQ(rows[2].note.find("by the estimate needs about "), 0U)
      << rows[2].note;
  // What is close to the limit says so; what is built is known.
  EXPECT_TRUE(rows[0].isClose);
  std::vector<WhatIfRow> wide = rows;
  wide[0].shape = std::string(200, '1'); // cut, but for that
  Replanned built = own;
  built.counted = 12'345'678;
  const std::string table = whatIfTable(built, wide);
  EXPECT_NE(table.find("1, may not fit\n"), std::string::npos) << table;
  EXPECT_NE(table.find(" 11.8 MiB "), std::string::npos) << table;
  EXPECT_NE(table.find(rows[2].note + "\n"), std::string::npos) << table;
}

/// A plan that leaves devices idle is one on fewer devices as well, whatever
/// the search finds there; the devices of a group are none of them idle.
TEST(WhatIf, FewerDevicesDoWhatTheyDoNow) {
  PlanRequest r = equalNodes(8);
  Replanned own{evaluatePlan(r, {0, 8}, {1, 1}), "1f1b"};
  own.result.stepSeconds /= 100;
  own.result.samplesPerSecond *= 100; // no search finds as much
  const auto onFour = [&] {
    for (const WhatIfRow &row : whatIf(r, own, "devices"))
      if (row.value == "4")
        return row.samplesPerSecond;
    return -1.0;
  };
  EXPECT_EQ(onFour(), own.result.samplesPerSecond);
  own.result.stages[1].devices = {3};
  own.result.stages[1].sharding.degree = 2;
  EXPECT_LT(onFour(), own.result.samplesPerSecond);
  own.result.stages[1].sharding.degree = 1;
  EXPECT_EQ(onFour(), own.result.samplesPerSecond);
  own.result.stages[1].devices = {4};
  EXPECT_LT(onFour(), own.result.samplesPerSecond);
}
