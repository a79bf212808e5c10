//===- CallSumsTest.cpp - what a rank's calls leave in memory -------------===//
#include "runtime/device/cuda/CallSums.h"
#include "runtime/kernels/cpu/Kernels.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

namespace {

using pipec::cuda::CallSums;

struct CallSumsTest : testing::Test {
  std::string file = testing::TempDir() + "call-sums";
  std::vector<float> memory = std::vector<float>(4);
  std::unique_ptr<CallSums> sums;
  CallSums::Read read =
      [](const char *from, int64_t bytes,
         const std::function<void(const char *, int64_t)> &use) {
        use(from, bytes / 2); // in pieces
        use(from + bytes / 2, bytes / 2);
      };

  void SetUp() override {
    setenv("PIPEC_CALL_SUMS", file.c_str(), 1);
    sums = CallSums::asked(3);
    unsetenv("PIPEC_CALL_SUMS");
    sums->add(reinterpret_cast<char *>(memory.data()), 16);
    sums->begin(read);
  }

  /// The line of a call that leaves these numbers.
  nlohmann::json after(std::vector<float> values, int32_t dtype = PIPEC_F32) {
    memory.assign(values.begin(), values.end());
    sums->after("a call", dtype, read);
    std::ifstream lines(file + ".rank3");
    std::string line, last;
    while (std::getline(lines, line))
      last = line;
    return nlohmann::json::parse(last);
  }
};

TEST_F(CallSumsTest, WhatHasChanged) {
  auto line = after({1, -2, 0, 2});
  EXPECT_EQ(line["rank"], 3);
  EXPECT_EQ(line["call"], 0);
  EXPECT_EQ(line["changed"], 12);
  EXPECT_EQ(line["sum"], 5);
  EXPECT_EQ(line["length"], 3);
  EXPECT_FALSE(line.contains("no_numbers"));
  line = after({1, -2, std::numeric_limits<float>::quiet_NaN(), 7});
  EXPECT_EQ(line["call"], 1);
  EXPECT_EQ(line["changed"], 8);
  EXPECT_EQ(line["sum"], 7);
  EXPECT_EQ(line["no_numbers"], 1);
}

TEST_F(CallSumsTest, RightNumbersAtWrongPlaces) {
  const size_t count = 1 << 12;
  std::vector<float> straight(count), zeros(count);
  for (size_t i = 0; i < count; ++i)
    straight[i] = static_cast<float>(std::sin(double(i)));
  sums->remove(reinterpret_cast<char *>(memory.data()));
  memory = zeros;
  sums->add(reinterpret_cast<char *>(memory.data()), int64_t(4 * count));
  sums->begin(read);
  const auto right = after(straight);
  EXPECT_LT(std::fabs(right["placed"].get<double>()),
            5 * right["length"].get<double>());
  // A step to the side, and a transpose.
  std::vector<float> moved(count), turned(count);
  for (size_t i = 0; i < count; ++i) {
    moved[i] = straight[(i + 1) % count];
    turned[i] = straight[i % 64 * 64 + i / 64];
  }
  for (const auto &wrong : {moved, turned}) {
    after(zeros);
    const auto line = after(wrong);
    EXPECT_NEAR(line["length"].get<double>(), right["length"].get<double>(),
                1e-6);
    EXPECT_NEAR(line["sum"].get<double>(), right["sum"].get<double>(), 1e-6);
    EXPECT_GT(
        std::fabs(line["placed"].get<double>() - right["placed"].get<double>()),
        0.01 * right["length"].get<double>());
  }
  // One number of thousands.
  after(zeros);
  straight[17] = -straight[17];
  const auto line = after(straight);
  EXPECT_GT(
      std::fabs(line["placed"].get<double>() - right["placed"].get<double>()),
      0.01 * right["length"].get<double>());
}

} // namespace
