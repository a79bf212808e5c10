#include "runtime/device/Device.h"

#include <gtest/gtest.h>

#include <thread>

using namespace pipec;

namespace {

plan::Plan planOf(const std::string &action) {
  plan::Plan plan;
  plan.cluster.kind = "cpu";
  plan.ranks.emplace_back();
  plan.ranks[0].program.kind = "step";
  plan.ranks[0].program.actions.push_back({action, 0, 0, {}});
  return plan;
}

/// A tenth of the smallest number of full precision, and ten times that again.
struct Tiny {
  float result = 1.2e-38f, again = 0;
  void compute() {
    volatile float small = result, tenth = small * 0.1f;
    result = tenth, again = tenth * 10.f;
  }
};

/// In a thread of its own that opens the device, and in one that it starts.
std::pair<Tiny, Tiny> computeOn(const plan::Plan &plan) {
  std::pair<Tiny, Tiny> tiny;
  std::thread([&] {
    auto device = openDevice({plan, 0});
    tiny.first.compute();
    std::thread([&] { tiny.second.compute(); }).join();
  }).join();
  return tiny;
}

} // namespace

TEST(Processor, TrainingTakesTinyNumbersForZero) {
  auto [own, started] = computeOn(planOf("B"));
  EXPECT_EQ(own.result, 0);
  EXPECT_EQ(own.again, 0);
  EXPECT_EQ(started.result, 0);
}

TEST(Processor, InferenceKeepsThem) {
  auto [own, started] = computeOn(planOf("F"));
  EXPECT_GT(own.result, 0);
  EXPECT_GT(own.again, 1e-38f);
  EXPECT_GT(started.result, 0);
}
