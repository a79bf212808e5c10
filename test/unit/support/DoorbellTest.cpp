//===- DoorbellTest.cpp - nobody sleeps through a ring --------------------===//
#include "support/Doorbell.h"
#include "support/Backoff.h"

#include <array>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pipec {
namespace {

constexpr long kSecond = 1'000'000'000;

/// A ring between the look and the sleep ends it at once; who is not to be
/// reached is not rung.
TEST(Doorbell, ARingBeforeTheSleepIsHeard) {
  std::array<Bell, 2> bells;
  const Doorbell mine(0, {&bells[0], &bells[1], nullptr}, false);
  const Doorbell other(1, {&bells[0], &bells[1], nullptr}, false);
  const uint32_t heard = mine.rings();
  other.ring(0);
  const double begin = now();
  mine.rest(heard, 100 * kSecond);
  EXPECT_LT(now() - begin, 50);
  EXPECT_EQ(mine.rings(), heard + 1);
  EXPECT_EQ(other.rings(), 0u);
  mine.ring(2);
  EXPECT_FALSE(mine.isComplete());
  mine.rest(mine.rings(), 1000); // nobody rings: it ends by itself
}

/// Thousands of words between two that sleep until they are rung: one that was
/// lost would be waited for a hundred seconds.
template <typename Start> void talk(Bell *bells, Start start) {
  constexpr uint32_t kWords = 20000;
  const auto side = [=](int self) {
    const Doorbell door(self, {&bells[0], &bells[1]}, true);
    for (uint32_t word = 0; word < kWords; ++word) {
      if (self == static_cast<int>(word % 2))
        door.ring(1 - self);
      else
        while (door.rings() <= word / 2)
          door.rest(word / 2, 100 * kSecond);
    }
    return door.rings() == kWords / 2;
  };
  const double begin = now();
  start(side);
  EXPECT_LT(now() - begin, 90);
}

TEST(Doorbell, ThreadsWakeEachOther) {
  std::array<Bell, 2> bells;
  talk(bells.data(), [](auto side) {
    bool heard = false;
    std::thread other([&] { heard = side(1); });
    EXPECT_TRUE(side(0));
    other.join();
    EXPECT_TRUE(heard);
  });
}

TEST(Doorbell, ProcessesWakeEachOther) {
  void *page = ::mmap(nullptr, 2 * sizeof(Bell), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  talk(static_cast<Bell *>(page), [](auto side) {
    const pid_t child = ::fork();
    if (child == 0)
      ::_exit(side(1) ? 0 : 1);
    EXPECT_TRUE(side(0));
    int status = 1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

/// Who waits with a bell or without one goes on when it is time.
TEST(Backoff, EndsWithABellAndWithout) {
  Bell bell;
  const Doorbell door(0, {&bell}, true);
  for (const Doorbell *with : {&door, static_cast<const Doorbell *>(nullptr)}) {
    std::atomic<bool> ready{false};
    std::thread other([&] {
      nap(5'000'000); // longer than anybody looks without a sleep
      ready = true;
      door.ring(0);
    });
    Backoff backoff;
    while (true) {
      const uint32_t heard = with ? with->rings() : 0;
      if (ready)
        break;
      backoff.pause(with, heard);
    }
    other.join();
  }
}

} // namespace
} // namespace pipec
