//===- Parallel.cpp - loops on the calling thread's team ------------------===//

#include "runtime/kernels/cpu/Parallel.h"

#include "runtime/kernels/cpu/Team.h"
#include "support/Cores.h"

#include <algorithm>
#include <cstdlib>

using pipec::cpu::Team;

namespace {

/// OMP_NUM_THREADS, which people know, or the cores at hand.
int defaultThreads() {
  if (const char *text = std::getenv("OMP_NUM_THREADS"))
    if (const int threads = std::atoi(text); threads > 0)
      return threads;
  return pipec::availableCores();
}

int &threadsOfThisThread() {
  static thread_local int threads = defaultThreads();
  return threads;
}

/// What a loop has to be worth to be shared.
int64_t &leastOfThisThread() {
  static thread_local int64_t least = 1;
  return least;
}

struct Ranges {
  void (*kernel)(int64_t, int64_t, void *const *);
  void *const *args;
  int64_t n, grain;
};

void runRange(const void *context, int64_t lo, int64_t hi) {
  const Ranges &r = *static_cast<const Ranges *>(context);
  r.kernel(lo * r.grain, std::min(hi * r.grain, r.n), r.args);
}

} // namespace

extern "C" void pipec_set_threads(int threads) {
  threadsOfThisThread() = std::max(threads, 1);
}

extern "C" int pipec_threads(void) {
  return Team::inLoop() ? 1 : threadsOfThisThread();
}

extern "C" void pipec_share_from(int64_t times) {
  leastOfThisThread() = std::max<int64_t>(times, 1);
}

int64_t pipec::cpu::leastShared() { return leastOfThisThread(); }

extern "C" void pipec_parallel(void (*kernel)(int64_t, int64_t, void *const *),
                               int64_t n, int64_t grain, void *const *args) {
  if (n <= 0)
    return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = (n - 1) / grain + 1;
  const int threads = pipec_threads();
  if (threads == 1 || chunks <= (grain > 1 ? pipec::cpu::leastShared() : 1))
    return kernel(0, n, args);
  const Ranges ranges{kernel, args, n, grain};
  Team::ofThisThread(threads).run({runRange, &ranges, chunks});
}

void pipec::cpu::onEveryThread(void (*body)()) {
  const int threads = pipec_threads();
  if (threads == 1)
    return body();
  Team &team = Team::ofThisThread(threads);
  team.run({[](const void *context, int64_t, int64_t) {
              (*static_cast<void (*const *)()>(context))();
            },
            &body, team.threads(), true});
}
