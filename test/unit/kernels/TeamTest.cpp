//===- TeamTest.cpp - threads that share a loop ---------------------------===//

#include "runtime/kernels/cpu/Team.h"

#include <condition_variable>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

using pipec::cpu::Team;

namespace {

using Body = std::function<void(int64_t, int64_t)>;

void run(Team &team, int64_t chunks, const Body &body, bool pinned = false) {
  team.run({[](const void *context, int64_t lo, int64_t hi) {
              (*static_cast<const Body *>(context))(lo, hi);
            },
            &body, chunks, pinned});
}

// Loops follow each other so closely that helpers are late for most of them.
TEST(Team, EveryChunkOnceInThousandsOfShortLoops) {
  Team team(4);
  std::vector<std::atomic<int>> count(97);
  int64_t want = 0;
  for (int loop = 0; loop < 20000; ++loop, ++want) {
    run(team, 97, [&](int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i)
        count[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
    });
    if (loop % 5000 == 0)
      usleep(1000); // helpers are asleep by now
    for (auto &c : count)
      ASSERT_EQ(c, want + 1) << "in loop " << loop;
  }
}

// What one thread writes in a loop, any thread may read in the next.
TEST(Team, LoopsSeeEachOthersResults) {
  Team team(3);
  std::vector<int64_t> a(1000), b(1000);
  for (int64_t loop = 1; loop <= 2000; ++loop) {
    run(team, 1000, [&](int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i)
        a[static_cast<size_t>(i)] = b[static_cast<size_t>(999 - i)] + 1;
    });
    run(team, 1000, [&](int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i)
        b[static_cast<size_t>(i)] = a[static_cast<size_t>(999 - i)];
    });
    ASSERT_EQ(b, std::vector<int64_t>(1000, loop));
  }
}

// A core that is taken away costs the piece in hand: the others do the rest.
TEST(Team, OthersTakeWhatAMemberLeaves) {
  Team team(2);
  const auto caller = std::this_thread::get_id();
  std::mutex mutex;
  std::condition_variable moved;
  int64_t done = 0;
  bool isHeld = false;
  run(team, 8, [&](int64_t lo, int64_t hi) {
    std::unique_lock lock(mutex);
    if (std::this_thread::get_id() != caller) {
      // Holds its first piece until all others are done, by the caller alone.
      isHeld = true;
      moved.notify_all();
      EXPECT_TRUE(moved.wait_for(lock, std::chrono::seconds(60),
                                 [&] { return done == 7; }));
    } else if (!isHeld) {
      moved.wait_for(lock, std::chrono::seconds(60), [&] { return isHeld; });
    }
    done += hi - lo;
    moved.notify_all();
  });
  EXPECT_TRUE(isHeld);
  EXPECT_EQ(done, 8);
}

TEST(Team, APinnedLoopRunsOnEveryMember) {
  Team team(3);
  for (int loop = 0; loop < 200; ++loop) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    run(
        team, 3,
        [&](int64_t lo, int64_t hi) {
          EXPECT_EQ(hi, lo + 1);
          std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
        },
        true);
    ASSERT_EQ(threads.size(), 3u);
  }
}

TEST(Team, EveryCallerHasItsOwn) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int loop = 0; loop < 500; ++loop)
        run(Team::ofThisThread(2 + loop / 250), 50,
            [&](int64_t lo, int64_t hi) {
              EXPECT_TRUE(Team::inLoop());
              sum += hi - lo;
            });
      EXPECT_FALSE(Team::inLoop());
    });
  for (std::thread &caller : callers)
    caller.join();
  EXPECT_EQ(sum, 4 * 500 * 50);
}

} // namespace
