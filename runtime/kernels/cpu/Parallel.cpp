//===- Parallel.cpp - static ranges on libgomp's pool ---------------------===//

#include "runtime/kernels/cpu/Kernels.h"

#include <algorithm>

// libgomp's interface; clang ships no omp.h for it.
extern "C" {
void GOMP_parallel(void (*fn)(void *), void *data, unsigned numThreads,
                   unsigned flags);
int omp_get_max_threads(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
int omp_in_parallel(void);
}

namespace {

struct Region {
  void (*kernel)(int64_t, int64_t, void *const *);
  void *const *args;
  int64_t n, grain, chunks;
};

void runShare(void *data) {
  const Region &r = *static_cast<const Region *>(data);
  const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
  const int64_t lo = r.chunks * me / threads * r.grain;
  const int64_t hi = std::min(r.chunks * (me + 1) / threads * r.grain, r.n);
  if (lo < hi)
    r.kernel(lo, hi, r.args);
}

} // namespace

extern "C" void pipec_parallel(void (*kernel)(int64_t, int64_t, void *const *),
                               int64_t n, int64_t grain, void *const *args) {
  if (n <= 0)
    return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = (n - 1) / grain + 1;
  if (chunks == 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
    kernel(0, n, args);
    return;
  }
  Region region{kernel, args, n, grain, chunks};
  // Always the whole team: a team of another size makes libgomp end and start
  // threads, which costs more than idle members do.
  GOMP_parallel(runShare, &region, 0, 0);
}
