//===- CoresTest.cpp - how many cores there are ---------------------------===//
#include "support/Cores.h"

#include <gtest/gtest.h>

using namespace pipec;

namespace {

/// A kernel for so many processors, of which a process may use every second.
int coresOfKernelFor(int processors) {
  return coresOf([&](size_t bytes, cpu_set_t *mask) {
    if (8 * bytes < static_cast<size_t>(processors)) {
      errno = EINVAL;
      return -1;
    }
    for (int cpu = 0; cpu < processors; cpu += 2)
      CPU_SET_S(cpu, bytes, mask);
    return 0;
  });
}

} // namespace

TEST(Cores, KernelsForMoreThanAFixedMaskAreCounted) {
  for (const int processors : {2, 1024, 1026, 8192})
    EXPECT_EQ(coresOfKernelFor(processors), processors / 2);
}

TEST(Cores, WithoutAMaskAllThereAreCount) {
  const int all =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (const int error : {ENOSYS, EPERM, EINVAL})
    EXPECT_EQ(coresOf([&](size_t, cpu_set_t *) {
                errno = error;
                return -1;
              }),
              all);
}

TEST(Cores, AThreadThatIsPinnedHasOne) {
  int cores = 0;
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(sched_getcpu(), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    cores = availableCores();
  }).join();
  EXPECT_EQ(cores, 1);
}

TEST(Cores, AThreadKeepsToOneOfThoseItHas) {
  cpu_set_t all;
  CPU_ZERO(&all);
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  const int count = CPU_COUNT(&all);
  for (int index : {0, 1, count, 2 * count + 1})
    std::thread([&] {
      ASSERT_TRUE(keepToCore(index));
      cpu_set_t mine;
      CPU_ZERO(&mine);
      ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
      ASSERT_EQ(CPU_COUNT(&mine), 1);
      int before = 0; // of those it had
      for (int core = 0; !CPU_ISSET(core, &mine); ++core)
        before += CPU_ISSET(core, &all) != 0;
      EXPECT_EQ(before, index % count);
    }).join();
  EXPECT_EQ(availableCores(), count); // of this thread
}
