#include "compiler/plan/DeviceModel.h"
#include "compiler/plan/Topology.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <set>

using namespace pipec;
using namespace pipec::plan;

TEST(DeviceModel, EveryRowIsPlausible) {
  std::set<std::string> names;
  for (const DeviceModel &d : deviceModels()) {
    EXPECT_TRUE(names.insert(d.name).second) << d.name;
    EXPECT_TRUE(d.kind == "gpu" || d.kind == "cpu");
    EXPECT_GT(d.memoryBytes, int64_t(1) << 30);
    for (DType t :
         {DType::F64, DType::F32, DType::TF32, DType::F16, DType::BF16})
      EXPECT_GT(d.peak(t), 1e9) << d.name;
    EXPECT_LE(d.peak(DType::F32), d.peak(DType::TF32)) << d.name;
    EXPECT_GE(d.intraBandwidth, d.interBandwidth) << d.name;
    EXPECT_FALSE(d.describe.empty());
  }
  EXPECT_TRUE(names.count("h100-sxm") && names.count("h200") &&
              names.count("a100-80g") && names.count("v100-32g") &&
              names.count("cpu"));
}

TEST(DeviceModel, UnknownNameListsTheOthers) {
  try {
    deviceModel("h1000");
    FAIL();
  } catch (const Failure &f) {
    EXPECT_EQ(f.code, Exit::Usage);
    EXPECT_NE(std::string(f.what()).find("h100-sxm"), std::string::npos);
  }
}

TEST(DeviceModel, TimeIsARooflineWithLaunches) {
  const DeviceModel &d = deviceModel("h100-sxm");
  // Nothing to do still costs a launch; more work never costs less.
  EXPECT_DOUBLE_EQ(opSeconds(d, 0, 0, OpKind::Copy, DType::F32),
                   d.launchSeconds);
  double last = 0;
  for (double flops = 1e6; flops < 1e15; flops *= 3) {
    double t = opSeconds(d, flops, 1e3, OpKind::MatMul, DType::BF16);
    EXPECT_GT(t, last);
    EXPECT_GE(t, flops / d.flopsBF16);
    last = t;
  }
  // A copy is bound by memory.
  EXPECT_GE(opSeconds(d, 0, 3.35e9, OpKind::Copy, DType::F32), 1e-3);
  // Large contractions reach more than half of the peak.
  EXPECT_LT(opSeconds(d, 1e13, 1e9, OpKind::MatMul, DType::BF16),
            2e13 / d.flopsBF16);
}

TEST(DeviceModel, NativeCpuSharesTheMachine) {
  DeviceModel core = nativeCpu(3.0, 512, int64_t(64) << 30, 4);
  EXPECT_DOUBLE_EQ(core.flopsF32, 3e9 * 16 * 4);
  EXPECT_DOUBLE_EQ(core.flopsBF16, core.flopsF32);
  EXPECT_DOUBLE_EQ(nativeCpu(3.0, 512, 1 << 30, 4, true).flopsBF16,
                   2 * core.flopsF32);
  EXPECT_EQ(core.memoryBytes, int64_t(16) << 30);
  EXPECT_THROW(nativeCpu(3.0, 256, 1, 0), Failure);
  // Ranks have as many threads as there are cores for, and at least one.
  Topology few = shareCores(gridTopology("2", core), 8);
  EXPECT_EQ(few.device.threads, 4);
  EXPECT_DOUBLE_EQ(few.device.flopsF32, 4 * core.flopsF32);
  Topology many = shareCores(gridTopology("2x16", core), 8);
  EXPECT_EQ(many.device.threads, 1);
  EXPECT_DOUBLE_EQ(many.device.memoryBandwidth, core.memoryBandwidth);
  EXPECT_EQ(many.cores, 8);
}
