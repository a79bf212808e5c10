//===- SharingTrialsTest.cpp - which loops threads share ------------------===//

#include "runtime/kernels/cpu/SharingTrials.h"
#include "runtime/kernels/cpu/Kernels.h"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <map>

using pipec::cpu::SharingTrials;

namespace {

using Costs = std::function<double(int64_t)>;

/// Seconds of so many calls.
double run(SharingTrials &trials, int calls, const Costs &costs,
           std::map<int64_t, int> *tried = nullptr) {
  double seconds = 0;
  for (int call = 0; call < calls; ++call) {
    const int64_t times = trials.next();
    const double took = costs(times);
    trials.took(took);
    seconds += took;
    if (tried)
      ++(*tried)[times];
  }
  return seconds;
}

double farApart(int64_t times) { return times == 1 ? 3 : times == 8 ? 2 : 1; }
double near(int64_t times) { return times == 1 ? 1 : times == 8 ? 1.7 : 2; }

TEST(SharingTrials, FindWhatIsFastest) {
  SharingTrials trials;
  EXPECT_FALSE(trials.isResting());
  run(trials, 30, farApart);
  EXPECT_EQ(trials.next(), 64);
  EXPECT_TRUE(trials.isResting());
  EXPECT_LT(run(trials, 10000, farApart), 10000 * 1.02);
}

// Who shares all loops at best pays one slow call now and then.
TEST(SharingTrials, CostLittle) {
  SharingTrials trials;
  std::map<int64_t, int> tried;
  EXPECT_LT(run(trials, 10000, near, &tried), 10000 * 1.001);
  EXPECT_EQ(trials.next(), 1);
  EXPECT_GT(tried[8], 2);
  EXPECT_EQ(tried[64], 0);
}

// The host of a virtual machine may move its cores at any time, either way.
TEST(SharingTrials, FollowCoresThatMove) {
  SharingTrials trials;
  run(trials, 5000, near);
  EXPECT_LT(run(trials, 1000, farApart), 1150);
  EXPECT_EQ(trials.next(), 64);
  run(trials, 5000, farApart);
  EXPECT_LT(run(trials, 1000, near), 1150);
  EXPECT_EQ(trials.next(), 1);
}

TEST(SharingTrials, ChanceDecidesNothing) {
  SharingTrials trials;
  uint32_t state = 1;
  std::map<int64_t, int> tried;
  run(
      trials, 20000,
      [&](int64_t) {
        state = state * 1664525 + 1013904223;
        return 1 + 0.02 * (state >> 8) / 0x1p24;
      },
      &tried);
  EXPECT_GT(tried[1], 19800);
}

/// How often a loop over `n` in grains of `grain` calls its kernel.
int pieces(int64_t n, int64_t grain) {
  std::atomic<int> count = 0;
  void *const args[] = {&count};
  pipec_parallel(
      [](int64_t, int64_t, void *const *args) {
        ++*static_cast<std::atomic<int> *>(args[0]);
      },
      n, grain, args);
  return count;
}

TEST(ShareFrom, LeavesLoopsOfFewGrainsToOneThread) {
  pipec_set_threads(2);
  EXPECT_GT(pieces(800, 100), 1);
  pipec_share_from(8);
  EXPECT_EQ(pieces(800, 100), 1);
  EXPECT_GT(pieces(900, 100), 1);
  EXPECT_GT(pieces(4, 1), 1); // of which each is worth a thread
  pipec_share_from(1);
  EXPECT_GT(pieces(800, 100), 1);
}

} // namespace
