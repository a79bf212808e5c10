//===- PartitionCommandFixture.h - runs `pipec partition` -------*- C++ -*-===//
#pragma once

#include "compiler/plan/command/PartitionCommand.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace pipec::plan::test {

/// Convolutions of 18 ms in all, then 6 ms with most of the weights.
inline const char *profile =
    R"(n0 -- Input0 -- forward_compute_time=9, backward_compute_time=0, activation_size=0, parameter_size=0
n1 -- Conv2d -- forward_compute_time=4, backward_compute_time=6, activation_size=4000, parameter_size=100
n2 -- Conv2d -- forward_compute_time=1, backward_compute_time=3, activation_size=4000, parameter_size=100
n3 -- Conv2d -- forward_compute_time=1, backward_compute_time=3, activation_size=4000, parameter_size=100
n4 -- Linear -- forward_compute_time=2, backward_compute_time=4, activation_size=100, parameter_size=900000
)"
    "\tn0 -- n1\n\tn1 -- n2\n\tn2 -- n3\n\tn3 -- n4\n";

inline const char *placement =
    R"({"maxSizePerFPGA": 1e9, "maxFPGAs": 2, "maxCPUs": 0,
 "nodes": [
  {"id": 0, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 3, "isBackwardNode": 0, "size": 1},
  {"id": 1, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 2, "isBackwardNode": 0, "size": 1},
  {"id": 2, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 4, "isBackwardNode": 0, "size": 1}],
 "edges": [{"sourceId": 0, "destId": 1, "cost": 0.25}, {"sourceId": 1, "destId": 2, "cost": 0.5}]})";

inline const char *piper = R"({"maxDevices": 2, "maxMemoryPerDevice": 100,
 "bandwidth": 10, "mbsInBatch": 4,
 "nodes": [
  {"id": 0, "name": "a", "TMPCs": {"1": [{"id": "vanilla",
   "timePerSample": 2, "parameterSize": 1, "memoryUsageA": 3,
   "memoryUsageB": 2, "syncTimeFw": {}, "syncTimeBw": {"1": 0.5}}]}},
  {"id": 1, "name": "b", "TMPCs": {"1": [{"id": "vanilla",
   "timePerSample": 3, "parameterSize": 1, "memoryUsageA": 3,
   "memoryUsageB": 2, "syncTimeFw": {"0": 0.5}, "syncTimeBw": {}}]}}],
 "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 1}]})";

class PartitionCommand : public ::testing::Test {
protected:
  void SetUp() override {
    folder =
        std::filesystem::temp_directory_path() /
        ("pipec-partition-" +
         std::string(
             ::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    write("vgg.txt", profile);
    write("place.json", placement);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string &name) const {
    return (folder / name).string();
  }
  void write(const std::string &name, const std::string &text) {
    std::ofstream(folder / name) << text;
  }
  /// Runs the command; `code` becomes its exit code, the result is stdout, or
  /// the message of a failure.
  std::string run(std::vector<std::string> args) {
    args.insert(args.begin(), "partition");
    std::vector<char *> argv;
    for (std::string &a : args)
      argv.push_back(a.data());
    argv.push_back(nullptr);
    ::testing::internal::CaptureStdout();
    std::string message;
    try {
      code = partitionCommand(static_cast<int>(args.size()), argv.data());
    } catch (const Failure &f) {
      code = static_cast<int>(f.code);
      message = f.what();
    }
    std::string out = ::testing::internal::GetCapturedStdout();
    return message.empty() ? out : message;
  }

  std::filesystem::path folder;
  int code = -1;
};

} // namespace pipec::plan::test
