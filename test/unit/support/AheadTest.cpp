//===- AheadTest.cpp - results that are made before they are asked for ----===//
#include "support/Ahead.h"
#include "support/Cores.h"
#include "support/Failure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

namespace pipec {
namespace {

/// All cores that are free, for as long as they live.
std::vector<SpareCore> claimAll() {
  std::vector<SpareCore> cores;
  while (std::optional<SpareCore> core = SpareCore::claim())
    cores.push_back(std::move(*core));
  return cores;
}

TEST(SpareCore, ThereIsOneLessThanCores) {
  for (int round = 0; round < 2; ++round) // they come back
    EXPECT_EQ(std::ssize(claimAll()), availableCores() - 1);
}

/// Whoever makes it, what is taken is what the task gives.
TEST(Ahead, GivesEveryTaskItsOwnResult) {
  for (int round = 0; round < 50; ++round) {
    Ahead<size_t> squares([](size_t i) {
      if (i % 7 == 3)
        throw Failure(Exit::NoFit, std::to_string(i));
      return i * i;
    });
    for (size_t i = 0; i < 40; ++i)
      squares.want(i);
    for (size_t i = 40; i-- > 0;) // in another order
      if (i % 7 == 3) {
        try {
          squares.take(i);
          FAIL();
        } catch (const Failure &failure) {
          EXPECT_EQ(failure.what(), std::to_string(i));
        }
      } else if (i % 5 != 0) { // some are not taken
        EXPECT_EQ(squares.take(i), i * i);
      }
    EXPECT_EQ(squares.take(100), 10000u); // that nobody wanted before
  }
}

/// With one core a search does what it did without.
TEST(Ahead, MakesNothingElseWhereNoCoreIsFree) {
  const std::vector<SpareCore> all = claimAll();
  std::vector<size_t> made;
  Ahead<size_t> tasks([&](size_t i) { return made.push_back(i), i; });
  for (size_t i : {1, 2, 3, 4})
    tasks.want(i);
  tasks.drop(2);
  for (size_t i : {3, 1})
    tasks.take(i);
  EXPECT_EQ(made, (std::vector<size_t>{3, 1}));
}

/// The second is begun while the first is made, and what is dropped is not.
TEST(Ahead, FreeCoresBeginWithWhatComesNext) {
  if (availableCores() < 2)
    GTEST_SKIP() << "one core";
  std::vector<SpareCore> others = claimAll();
  others.pop_back();
  std::atomic<bool> isBegun = false, isDropped = false;
  std::atomic<int> made[3] = {};
  Ahead<bool> tasks([&](size_t i) {
    ++made[i];
    isBegun = isBegun || i == 1;
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!(i == 0 ? isBegun : isDropped) &&
           std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    return isBegun.load();
  });
  tasks.want(1);
  tasks.want(2);
  EXPECT_TRUE(tasks.take(0));
  tasks.drop(2);
  isDropped = true;
  EXPECT_TRUE(tasks.take(1));
  EXPECT_EQ(made[0] + made[1], 2);
  EXPECT_EQ(made[2], 0);
}

/// What was begun ends before the tasks do, taken or not, and may have tasks of
/// its own.
TEST(Ahead, TasksMayHaveTasks) {
  std::atomic<int> begun = 0, ended = 0;
  for (int round = 0; round < 20; ++round) {
    Ahead<size_t> outer([&](size_t i) {
      ++begun;
      Ahead<size_t> inner([i](size_t j) { return 10 * i + j; });
      for (size_t j : {1, 2, 3})
        inner.want(j);
      const size_t sum = inner.take(3) + inner.take(1);
      ++ended;
      return sum;
    });
    for (size_t i = 0; i < 8; ++i)
      outer.want(i), outer.want(i); // once is enough
    EXPECT_EQ(outer.take(7), 144u);
    EXPECT_EQ(outer.take(2), 44u);
    for (size_t i = 3; i < 8; ++i)
      outer.drop(i); // begun or not
  }
  EXPECT_EQ(begun, ended);
}

/// One line says what is done: not what is made besides.
TEST(Ahead, PhasesAreThoseOfWhatIsTaken) {
  if (availableCores() < 2)
    GTEST_SKIP() << "one core";
  const Phase::Audience audience;
  const Phase mine("mine");
  std::atomic<bool> isBegun = false;
  Ahead<std::vector<std::string>> tasks([&](size_t i) {
    const Phase own("task " + std::to_string(i));
    std::vector<std::string> heard = phasesUnderWay();
    isBegun = isBegun || i == 1;
    return heard;
  });
  tasks.want(1);
  while (!isBegun)
    std::this_thread::yield();
  using Names = std::vector<std::string>;
  EXPECT_EQ(tasks.take(1), Names{"mine"});
  EXPECT_EQ(tasks.take(0), (Names{"mine", "task 0"}));
}

} // namespace
} // namespace pipec
