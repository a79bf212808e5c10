#include "runtime/device/Device.h"
#include "support/Clock.h"

#include <gtest/gtest.h>

#include <cstdlib>
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

int teamSize = 1;       ///< what the kernels say
int64_t sharedFrom = 0; ///< what they were told last

/// Of loops that are faster in one thread.
void ofShortLoops(PipecFrame *) {
  const double end = pipec::now() + (sharedFrom == 1 ? 1e-3 : 1e-4);
  while (pipec::now() < end)
    ;
}

/// What the last of some calls of a task was told, in a thread of their own.
int64_t toldBy(int threads) {
  teamSize = threads;
  sharedFrom = 0;
  std::thread([] {
    const plan::Plan plan = planOf("B");
    auto device = openDevice({plan, 0});
    PipecFrame frame{};
    for (int call = 0; call < 40; ++call)
      device->run(ofShortLoops, frame);
  }).join();
  return sharedFrom;
}

} // namespace

// In place of the kernels, which a program finds among its own symbols.
extern "C" int pipec_threads(void) { return teamSize; }
extern "C" void pipec_share_from(int64_t times) { sharedFrom = times; }

TEST(Processor, TasksOfThreadsAreTriedWithLoopsNotShared) {
  EXPECT_GT(toldBy(2), 1);
  EXPECT_EQ(toldBy(1), 0); // has nobody to share with
  setenv("PIPEC_LOOPS", "shared", 1);
  EXPECT_EQ(toldBy(2), 0);
  unsetenv("PIPEC_LOOPS");
}

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
