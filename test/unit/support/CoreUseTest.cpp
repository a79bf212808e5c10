//===- CoreUseTest.cpp - who had this machine's cores ---------------------===//
#include "support/CoreUse.h"
#include "support/Clock.h"

#include <gtest/gtest.h>

namespace pipec {

TEST(CoreUse, ReadsTheCoresOfTheProcess) {
  const std::string stat = "cpu  900 900 900 900 900 900 900 900 900 900\n"
                           "cpu0 10 20 30 100 50 1 2 37 4 0\n"
                           "cpu1 1000 0 0 0 0 0 0 0 0 0\n"
                           "cpu2 0 0 0 250 0 0 0 0 0 0\n"
                           "intr 5 5 5\n";
  const CoreSeconds cores =
      readCoreSeconds(stat, 100, [](int core) { return core != 1; });
  EXPECT_DOUBLE_EQ(cores.total, 5); // guests are users already
  EXPECT_DOUBLE_EQ(cores.idle, 4);
  EXPECT_EQ(readCoreSeconds("", 100, [](int) { return true; }).total, 0);
}

TEST(CoreUse, OthersHadWhatTheJobHadNot) {
  // Two processes of one machine, one of them with two ranks; one elsewhere.
  const CoreUse first{1, 11, {10, 1}, 3, {3}}, second{1, 12, {9, 1}, 2, {3}},
      elsewhere{2, 11, {50, 0}, 5, {3}};
  EXPECT_DOUBLE_EQ(shareOfOthers({first, first, second, elsewhere}), 0.4);
  // Idle cores were left: nobody waited.
  const CoreUse free{1, 11, {10, 5}, 3, {3}};
  EXPECT_EQ(shareOfOthers({free}), 0);
  EXPECT_EQ(shareOfOthers({CoreUse()}), 0);
  EXPECT_EQ(shareOfOthers({}), 0);
}

TEST(CoreUse, ProcessesOnCoresOfTheirOwn) {
  // Another program sits on the second one's core.
  const CoreUse first{1, 11, {10, 2}, 8, {1}}, second{1, 12, {10, 0}, 6, {2}},
      both{1, 13, {20, 2}, 1, {3}};
  EXPECT_DOUBLE_EQ(shareOfOthers({first, second}), 0.4);
  EXPECT_DOUBLE_EQ(shareOfOthers({second, first}), 0.4);
  EXPECT_DOUBLE_EQ(shareOfOthers({first, second, both}), 0.3);
  EXPECT_EQ(shareOfOthers({first}), 0);
}

TEST(CoreUse, CountsWhatThisProcessTakes) {
  const CoreUse begin = coreUse();
  const double until = coreSeconds() + 0.3;
  while (coreSeconds() < until) {
  }
  const CoreUse use = coreUse() - begin;
  EXPECT_GE(use.own, 0.3);
  EXPECT_GE(use.cores.total, 0.2); // its clock ticks
  EXPECT_GE(use.cores.total, use.cores.idle);
  EXPECT_GE(shareOfOthers({use}), 0);
  EXPECT_LE(shareOfOthers({use}), 1);
}

} // namespace pipec
