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

/// Seconds of as many pauses, at the least of some tries: other programs make
/// it longer. `early`: the bell has rung before each.
double pauses(const Doorbell &door, int count, bool early) {
  double least = 1e9;
  for (int tries = 0; tries < 5; ++tries) {
    Backoff backoff;
    const double eager = now();
    while (now() - eager < 2 * kEagerSeconds) // then it sleeps
      backoff.pause(&door, door.rings() - 1);
    const double begin = now();
    for (int i = 0; i < count; ++i)
      backoff.pause(&door, door.rings() - (early ? 1 : 0));
    least = std::min(least, now() - begin);
  }
  return least;
}

/// Where all messages ring, who waits sleeps until then; where some come from
/// ranks that cannot, it looks again soon.
TEST(Backoff, SleepsLongOnlyWhereEverybodyRings) {
  std::array<Bell, 2> bells;
  const Doorbell all(0, {&bells[0], &bells[1]}, true);
  const Doorbell some(0, {&bells[0], &bells[1], nullptr}, false);
  constexpr int kPauses = 100;
  EXPECT_GT(pauses(all, kPauses, false), kPauses * 400e-6);
  EXPECT_LT(pauses(all, kPauses, true), kPauses * 100e-6);
  EXPECT_LT(pauses(some, kPauses, false), kPauses * 200e-6);
  EXPECT_GT(pauses(some, kPauses, false), kPauses * 15e-6);
}

} // namespace
} // namespace pipec
