//===- Cores.h - the cores that a thread may run on -------------*- C++ -*-===//
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <sched.h>
#include <thread>

namespace pipec {

/// Cores in the mask that `get(bytes, mask)` fills as sched_getaffinity does:
/// with EINVAL where the kernel's mask is larger. Those there are where it
/// cannot be had.
template <typename Get> int coresOf(const Get &get) {
  for (int most = CPU_SETSIZE; most <= 1 << 20; most *= 2) {
    cpu_set_t *mask = CPU_ALLOC(most);
    if (!mask)
      break;
    const size_t bytes = CPU_ALLOC_SIZE(most);
    CPU_ZERO_S(bytes, mask);
    const bool isThere = get(bytes, mask) == 0;
    const bool isLarger = !isThere && errno == EINVAL;
    const int cores = isThere ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (isThere)
      return std::max(cores, 1);
    if (!isLarger)
      break;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Cores that this thread may run on.
inline int availableCores() {
  return coresOf([](size_t bytes, cpu_set_t *mask) {
    return sched_getaffinity(0, bytes, mask);
  });
}

/// Keeps this thread, and those that it starts from now on, to one of the cores
/// that it may run on: to number `index`, counted round. False where the system
/// does not let it.
inline bool keepToCore(int index) {
  bool done = false;
  coresOf([&](size_t bytes, cpu_set_t *mask) {
    if (const int failed = sched_getaffinity(0, bytes, mask))
      return failed;
    int left = index % std::max(1, CPU_COUNT_S(bytes, mask));
    for (size_t core = 0; core < 8 * bytes && !done; ++core)
      if (CPU_ISSET_S(core, bytes, mask) && left-- == 0) {
        CPU_ZERO_S(bytes, mask);
        CPU_SET_S(core, bytes, mask);
        done = sched_setaffinity(0, bytes, mask) == 0;
        return 0;
      }
    return 0;
  });
  return done;
}

} // namespace pipec
