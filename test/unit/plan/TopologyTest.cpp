#include "compiler/plan/Topology.h"
#include "compiler/plan/Collective.h"
#include "compiler/plan/KernelWork.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace pipec;
using namespace pipec::plan;

TEST(Topology, GridsAndLinks) {
  Topology t = gridTopology("2x8", deviceModel("h100-sxm"));
  EXPECT_EQ(t.devices(), 16);
  EXPECT_EQ(t.link(0, 7).level, 1);
  EXPECT_EQ(t.link(7, 8).level, 0);
  EXPECT_DOUBLE_EQ(t.link(7, 8).bandwidth, 50e9);
  EXPECT_EQ(t.link(3, 3).level, 2);
  EXPECT_EQ(gridTopology("4", deviceModel("cpu")).devices(), 4);
  for (const char *bad :
       {"", "x", "0", "2x0", "2x", "-1", "2x2x2", "1e3", "99999999"})
    EXPECT_THROW(gridTopology(bad, deviceModel("cpu")), Failure) << bad;
}

TEST(Topology, CpuFileSaysWhichCoresItsRanksShare) {
  Topology t = parseTopology(R"({"cores": 4, "levels": [
      {"name": "server", "count": 1, "bandwidth_GBps": 1},
      {"name": "cpu", "count": 2, "bandwidth_GBps": 5}],
    "device": {"kind": "cpu", "memory_GiB": 8, "flops": {"fp32": 1e11},
               "memory_GBps": 20}})",
                             "here");
  EXPECT_EQ(t.cores, 4);
  EXPECT_EQ(t.device.threads, 2);
  EXPECT_DOUBLE_EQ(t.device.flopsF32, 2e11);
  Topology again = parseTopology(writeTopology(t), "again");
  EXPECT_EQ(writeTopology(again), writeTopology(t));
  EXPECT_DOUBLE_EQ(again.device.flopsF32, 2e11);
  // Two ranks of two threads, or eight that take turns, have four caches.
  EXPECT_EQ(t.caches(), 4);
  t.levels[1].count = 8, t.device.threads = 1;
  EXPECT_EQ(t.caches(), 4);
  t.levels[0].count = 3;
  EXPECT_EQ(t.caches(), 12);
  t.cores = 0; // GPUs
  EXPECT_EQ(t.caches(), 24);
  for (const char *cores : {"0", "1.5", "-1", "\"two\""})
    EXPECT_THROW(
        parseTopology(std::string(R"({"cores": )") + cores +
                          R"(, "levels": [{"count": 2, "bandwidth_GBps": 5}],
                             "device": "cpu"})",
                      "bad"),
        Failure)
        << cores;
  EXPECT_THROW(parseTopology(R"({"cores": 2, "levels": [{"count": 2,
                   "bandwidth_GBps": 5}], "device": "v100-16g"})",
                             "gpu"),
               Failure);
}

/// What an older calibration measured has gone: the file says nothing of what
/// took its place.
TEST(Topology, FilesOfOlderCalibrationsAreToBeMeasuredAgain) {
  try {
    parseTopology(R"({"levels": [{"count": 2, "bandwidth_GBps": 5}],
  "device": {"kind": "cpu", "memory_GiB": 8, "memory_GBps": 20,
             "receive_us": 3, "flops": {"fp32": 1e11}}})",
                  "old.json");
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::BadPlan);
    EXPECT_STREQ(
        failure.what(),
        "cluster old.json:3: \"receive_us\" is what an older pipec measured; "
        "calibrate again (pipec calibrate … -o FILE)");
  }
}

/// Nor do costs of what a routine was taken to do then.
TEST(Topology, CostsOfOlderCalibrationsAreToBeMeasuredAgain) {
  const auto refusal = [](const std::string &costs) -> std::string {
    try {
      parseTopology(R"({"levels": [{"count": 2, "bandwidth_GBps": 5}],
  "device": {"kind": "cpu", "memory_GiB": 8, "memory_GBps": 20,
             "flops": {"fp32": 1e11}, "far_kernels_ns": {"gather":
  )" + costs + "}}}",
                    "old.json");
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::BadPlan);
      return failure.what();
    }
    return "";
  };
  const std::vector<std::string> &amounts = kernelAmounts().at("gather");
  std::string all;
  for (const std::string &amount : amounts)
    all += (all.empty() ? "\"" : ", \"") + amount + "\": 1";
  EXPECT_EQ(refusal("{" + all + "}"), "");
  EXPECT_EQ(refusal("{" + all + ", \"turn\": 1}"),
            "cluster old.json:4: \"gather\" with \"turn\" is what an older "
            "pipec measured; calibrate again (pipec calibrate … -o FILE)");
  EXPECT_EQ(refusal("{}"), "cluster old.json:4: \"gather\" without \"" +
                               amounts.front() +
                               "\" is what an older pipec measured; calibrate "
                               "again (pipec calibrate … -o FILE)");
}

TEST(Topology, FileRoundTrip) {
  const char *text = R"({"levels": [
      {"name": "server", "count": 2, "bandwidth_GBps": 12.5, "latency_us": 5},
      {"name": "gpu", "count": 8, "bandwidth_GBps": 300, "latency_us": 2}],
    "device": {"memory_GiB": 80, "flops": {"fp32": 6e13, "bf16": 9e14}, "memory_GBps": 3350}})";
  Topology t = parseTopology(text, "here");
  EXPECT_EQ(t.devices(), 16);
  EXPECT_DOUBLE_EQ(t.levels[0].latency, 5e-6);
  EXPECT_EQ(t.device.memoryBytes, int64_t(80) << 30);
  EXPECT_DOUBLE_EQ(t.device.flopsBF16, 9e14);
  Topology again = parseTopology(writeTopology(t), "again");
  EXPECT_EQ(again.devices(), 16);
  EXPECT_DOUBLE_EQ(again.levels[1].bandwidth, t.levels[1].bandwidth);
  EXPECT_EQ(writeTopology(again), writeTopology(t));
  // What calibration found of routines, too.
  t.device.kernels["product"] = std::vector<double>(13, 2e-9);
  t.device.kernels["product"][3] = 0.125e-9;
  t.device.farKernels["gather"] = {1e-9, 2e-9, 4e-9};
  t.device.ownCacheBytes = 1 << 20;
  t.device.passes = {{1 << 20, 2e-11}, {1 << 22, 4e-11}};
  t.device.tile = {8, 16, 3};
  t.device.forkSeconds = 2e-6, t.device.forkEfficiency = 0.75;
  again = parseTopology(writeTopology(t), "again");
  EXPECT_EQ(writeTopology(again), writeTopology(t));
  EXPECT_NEAR(again.device.kernels.at("product").at(3), 0.125e-9, 1e-18);
  EXPECT_DOUBLE_EQ(again.device.forkEfficiency, 0.75);
  EXPECT_EQ(again.device.tile, t.device.tile);
  EXPECT_NEAR(again.device.farKernels.at("gather").at(2), 4e-9, 1e-18);
  EXPECT_EQ(again.device.ownCacheBytes, 1 << 20);
  ASSERT_EQ(again.device.passes.size(), 2u);
  EXPECT_EQ(again.device.passes[1].bytes, 1 << 22);
  EXPECT_NEAR(again.device.passes[1].secondsPerByte, 4e-11, 1e-18);
}

/// What calibration found of messages, also of ranks that share cores.
TEST(Topology, MessagesRoundTrip) {
  Topology t = parseTopology(R"({"levels": [
      {"name": "cpu", "count": 4, "bandwidth_GBps": 5}],
    "device": {"kind": "cpu", "memory_GiB": 8, "flops": {"fp32": 1e11},
               "memory_GBps": 20}})",
                             "here");
  EXPECT_DOUBLE_EQ(t.device.seenSeconds, 3e-6); // not timed
  EXPECT_DOUBLE_EQ(t.device.crowdSeenSeconds, 3e-6);
  DeviceModel &d = t.device;
  d.ringSeconds = 20e-6, d.seenSeconds = 0, d.crowdSeenSeconds = 14e-6;
  d.takeSeconds = 2e-6, d.noteSeconds = 0.25e-6, d.stepSeconds = 5e-6;
  d.crowdTurnSeconds = 1.5e-6;
  const DeviceModel again = parseTopology(writeTopology(t), "again").device;
  EXPECT_DOUBLE_EQ(again.ringSeconds, 20e-6);
  EXPECT_DOUBLE_EQ(again.seenSeconds, 0);
  EXPECT_DOUBLE_EQ(again.crowdSeenSeconds, 14e-6);
  EXPECT_DOUBLE_EQ(again.takeSeconds, 2e-6);
  EXPECT_DOUBLE_EQ(again.noteSeconds, 0.25e-6);
  EXPECT_DOUBLE_EQ(again.stepSeconds, 5e-6);
  EXPECT_DOUBLE_EQ(again.crowdTurnSeconds, 1.5e-6);
}

TEST(Topology, BadFilesSayWhere) {
  auto message = [](const std::string &text) -> std::string {
    try {
      parseTopology(text, "c.json");
    } catch (const Failure &f) {
      EXPECT_EQ(f.code, Exit::BadPlan);
      return f.what();
    }
    ADD_FAILURE() << text;
    return {};
  };
  EXPECT_NE(message("{").find("c.json"), std::string::npos);
  EXPECT_NE(message("[]").find("levels"), std::string::npos);
  EXPECT_NE(message("{\"levels\":[{\"count\":1,\n\"latency\":5}]}")
                .find("c.json:2: a level has no member \"latency\""),
            std::string::npos);
  EXPECT_NE(message("{\"core\":1}").find("the file has no member \"core\""),
            std::string::npos);
  EXPECT_NE(message(R"({"levels":[{"count":2}],"device":"h200"})")
                .find("bandwidth_GBps"),
            std::string::npos);
  EXPECT_NE(
      message(R"({"levels":[{"count":0,"bandwidth_GBps":1}],"device":"h200"})")
          .find("count"),
      std::string::npos);
  EXPECT_NE(
      message(
          R"({"levels":[{"count":1.5,"bandwidth_GBps":1}],"device":"h200"})")
          .find("whole number"),
      std::string::npos);
  EXPECT_NE(
      message(R"({"levels":[{"count":1,"bandwidth_GBps":1}]})").find("device"),
      std::string::npos);
  EXPECT_NE(
      message(R"({"levels":[{"count":1,"bandwidth_GBps":1}],"device":"nope"})")
          .find("h100-sxm"),
      std::string::npos);
  EXPECT_NE(
      message(
          R"({"levels":[{"count":1,"bandwidth_GBps":1}],"device":{"memory_GiB":1}})")
          .find("memory_GBps"),
      std::string::npos);
  auto device = [&](const std::string &fields) {
    return message(R"({"levels":[{"count":1,"bandwidth_GBps":1}],"device":{)" +
                   fields + R"("memory_GBps":1,"flops":{"fp32":1e12}}})");
  };
  for (auto [fields, part] : {
           std::pair(R"("kind":3,"memory_GiB":1,)", "\"kind\" is not a text"),
           std::pair(R"("kind":"tpu","memory_GiB":1,)", "\"cpu\" or \"gpu\""),
           std::pair(R"("name":[],"memory_GiB":1,)", "\"name\" is not a text"),
           std::pair(R"("memory_GiB":1e12,)", "at most 1e9"),
           std::pair(R"("memory_GiB":1,"efficiency":2,)", "\"efficiency\""),
           std::pair(R"("memory_GiB":1,"kernels_ns":2,)", "\"kernels_ns\""),
           std::pair(R"("memory_GiB":1,"kernels_ns":{"x":{}},)",
                     "no kernel \"x\""),
           std::pair(R"("memory_GiB":1,"kernels_ns":{"product":{"call":1}},)",
                     "\"matrix\""),
           std::pair(R"("memory_GiB":1,"kernels_ns":{"product":7},)",
                     "\"product\" is not an object"),
           std::pair(R"("memory_GiB":1,"crowd":0.5,)",
                     "\"crowd\" is what an older pipec measured"),
           std::pair(R"("memory_GiB":1,"passes":{},)",
                     "\"passes\" is not a list"),
           std::pair(R"("memory_GiB":1,"passes":[3],)",
                     "entry 0 of \"passes\" is not an object"),
           std::pair(R"("memory_GiB":1,"passes":[{"KiB":4}],)",
                     "entry 0 of \"passes\" has no \"ns_per_KiB\""),
           std::pair(R"("memory_GiB":1,"passes":[{"KiB":4,"ns_per_KiB":20},
                      {"KiB":8,"ns_per_KiB":10}],)",
                     "entry 1 of \"passes\" is smaller or cheaper than the "
                     "one before; write the file anew with pipec calibrate"),
           std::pair(R"("memory_GiB":1,"passes":[{"KiB":4,"ns_per_KiB":20}],)",
                     "\"passes\" say nothing without \"own_cache_KiB\"; write "
                     "the file anew with pipec calibrate"),
           std::pair(R"("memory_GiB":1,"passes":[{"kib":4}],)",
                     "an entry of \"passes\" has no member \"kib\""),
           std::pair(R"("memory_GiB":1,"fork_efficiency":0,)",
                     "\"fork_efficiency\""),
           std::pair(R"("memory_GiB":5e-10,)", "must be a byte at least"),
           std::pair(R"("memory_GiB":1,"launch_us":1e300,)",
                     "\"launch_us\" must be at most 1e18"),
           std::pair(R"("memory_GiB":1,"fork_efficiency":1e-300,)",
                     "must be at least 1e-12"),
           std::pair(R"("memory_GiB":1,"tile":8,)", "\"tile\" is not"),
           std::pair(R"("memory_GiB":1,"tile":{"rows":1.5},)", "whole number"),
           std::pair(
               "\n\"memory_GB\":1,\"memory_GiB\":1,",
               "c.json:2: \"device\" has no member \"memory_GB\" (did "
               "you mean memory_GiB?); there are: name, kind, memory_GiB"),
           std::pair(R"("memory_GiB":1,"efficiency":{"matmult":1},)",
                     "\"efficiency\" has no member \"matmult\""),
           std::pair(R"("memory_GiB":1,"kernels_ns":{"gather":{"calls":1}},)",
                     "\"gather\" with \"calls\" is what an older pipec"),
       })
    EXPECT_NE(device(fields).find(part), std::string::npos) << fields;
  try {
    readTopology("/nonexistent/cluster.json");
    FAIL();
  } catch (const Failure &f) {
    EXPECT_EQ(f.code, Exit::NoInput);
  }
}

TEST(Collective, RingAndHierarchy) {
  Topology t = gridTopology("2x4", deviceModel("h100-sxm"));
  std::vector<int> one{0, 1, 2, 3}, all(8), across{0, 4};
  std::iota(all.begin(), all.end(), 0);
  int64_t bytes = 1'000'000'000;
  EXPECT_EQ(allReduceSeconds(t, {3}, bytes), 0);
  EXPECT_NEAR(allReduceSeconds(t, one, bytes), 1.5 * 1e9 / 450e9 + 6 * 2e-6,
              1e-9);
  EXPECT_NEAR(allReduceSeconds(t, across, bytes), 1e9 / 50e9 + 2 * 5e-6, 1e-9);
  // Reduce-scatter inside, a quarter of the bytes across.
  EXPECT_NEAR(allReduceSeconds(t, all, bytes),
              allReduceSeconds(t, one, bytes) + 0.25e9 / 50e9 + 2 * 5e-6, 1e-9);
}

/// As of cores that take turns, in servers with quick networks.
TEST(Collective, StepsOfARingWaitForEveryLink) {
  Topology t = gridTopology("2x2", deviceModel("h100-sxm"));
  t.levels = {{"server", 2, 1e9, 1e-6}, {"core", 2, 4e9, 1e-3}};
  const int64_t bytes = 1'000'000;
  EXPECT_NEAR(allReduceSeconds(t, {0, 2}, bytes), 2 * 1e-6 + 1e-3, 1e-9);
  // A ring in each server, and one across for half of the bytes.
  EXPECT_NEAR(allReduceSeconds(t, {0, 1, 2, 3}, bytes),
              2 * 1e-3 + 0.25e-3 + 2 * 1e-6 + 0.5e-3, 1e-9);
  // Two here, one there: no such hierarchy.
  EXPECT_NEAR(allReduceSeconds(t, {0, 1, 2}, bytes), 4 * 1e-3 + 4e-3 / 3, 1e-9);
  // The first device has no link of the kind that is the narrowest.
  t.levels[1].bandwidth = 0.5e9;
  EXPECT_NEAR(allReduceSeconds(t, {1, 2, 3}, bytes), 4 * 1e-3 + 8e-3 / 3, 1e-9);
}

TEST(Collective, BoundaryTakesTheSlowestLinkThatIsUsed) {
  Topology t = gridTopology("2x4", deviceModel("h100-sxm"));
  EXPECT_EQ(boundaryLink(t, {0, 1}, {2, 3}).level, 1);
  EXPECT_EQ(boundaryLink(t, {0, 1, 2}, {3, 4}).level, 0);
  // Pipelines inside servers: equal replicas meet pairwise.
  EXPECT_EQ(boundaryLink(t, {0, 4}, {1, 5}).level, 1);
}
