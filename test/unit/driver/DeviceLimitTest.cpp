#include "compiler/driver/Planning.h"

#include <gtest/gtest.h>

using namespace pipec;

namespace {

constexpr int64_t kGiB = int64_t(1) << 30;

plan::Topology deviceOf(const char *kind, int64_t bytes) {
  plan::DeviceModel device = plan::deviceModel("h200");
  device.kind = kind, device.memoryBytes = bytes;
  return plan::gridTopology("2", device);
}

} // namespace

/// Ranks share the memory of their server alone.
TEST(DeviceLimit, ServersHaveMemoryOfTheirOwn) {
  const auto of = [](const char *cpus) {
    CompileOptions options;
    options.cpus = cpus;
    return topologyOf(options).device.memoryBytes;
  };
  const int64_t all = of("1");
  EXPECT_EQ(of("3x1"), all);
  EXPECT_EQ(of("4"), all / 4);
  EXPECT_EQ(of("1x4"), all / 4);
  EXPECT_EQ(of("2x4"), all / 4);
}

/// A GPU's context and libraries need memory that no plan may take, unless the
/// user says how much one may.
TEST(DeviceLimit, LeavesRoomOnGpus) {
  CompileOptions options;
  EXPECT_EQ(deviceLimit(options, deviceOf("gpu", 80 * kGiB)), 78 * kGiB);
  EXPECT_EQ(deviceLimit(options, deviceOf("gpu", 4 * kGiB)), 4 * kGiB);
  EXPECT_EQ(deviceLimit(options, deviceOf("cpu", 80 * kGiB)), 80 * kGiB);
  options.memoryLimit = 80 * kGiB;
  EXPECT_EQ(deviceLimit(options, deviceOf("gpu", 80 * kGiB)), 80 * kGiB);
}
