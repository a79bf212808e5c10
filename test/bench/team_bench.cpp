//===- team_bench.cpp - loops on our team and on libgomp's ----------------===//
//
//   team_bench
//
// A loop over 64 points of about `rounds` microseconds each, shared by two
// threads, beside `busy` others that compute: ours (Team.h) and a static loop
// of libgomp, which is opened if the machine has it.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/cpu/Kernels.h"

#include <atomic>
#include <benchmark/benchmark.h>
#include <cmath>
#include <dlfcn.h>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kPoints = 64;

/// A microsecond or so of arithmetic that no compiler leaves out.
void compute(double &value, int64_t rounds) {
  for (int64_t i = 0; i < rounds * 150; ++i)
    value = std::sqrt(value + 1);
}

struct Work {
  std::vector<double> values = std::vector<double>(kPoints * 16);
  int64_t rounds = 1;

  void part(int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i)
      compute(values[static_cast<size_t>(i * 16)], rounds);
  }
};

/// Threads that compute while it lives.
class Crowd {
public:
  explicit Crowd(int64_t size) {
    for (int64_t i = 0; i < size; ++i)
      threads.emplace_back([this] {
        double value = 0;
        while (!isOver)
          compute(value, 10);
        benchmark::DoNotOptimize(value);
      });
  }
  ~Crowd() {
    isOver = true;
    for (std::thread &thread : threads)
      thread.join();
  }

private:
  std::atomic<bool> isOver{false};
  std::vector<std::thread> threads;
};

void ours(Work &work) {
  void *const args[] = {&work};
  pipec_parallel(
      [](int64_t lo, int64_t hi, void *const *args) {
        static_cast<Work *>(args[0])->part(lo, hi);
      },
      kPoints, 1, args);
}

using GompParallel = void (*)(void (*)(void *), void *, unsigned, unsigned);
void *const gomp = dlopen("libgomp.so.1", RTLD_NOW);

void libgomp(Work &work) {
  static const auto parallel =
      reinterpret_cast<GompParallel>(dlsym(gomp, "GOMP_parallel"));
  static const auto me =
      reinterpret_cast<int (*)()>(dlsym(gomp, "omp_get_thread_num"));
  parallel(
      [](void *work) {
        const int64_t half = me();
        static_cast<Work *>(work)->part(kPoints * half / 2,
                                        kPoints * (half + 1) / 2);
      },
      &work, 2, 0);
}

void loops(benchmark::State &state, void (*loop)(Work &)) {
  pipec_set_threads(2);
  Work work;
  work.rounds = state.range(0);
  const Crowd crowd(state.range(1));
  for (auto _ : state)
    loop(work);
}

void arguments(benchmark::internal::Benchmark *b) {
  b->ArgNames({"rounds", "busy"})->UseRealTime();
  for (int64_t busy : {0, 1, 2})
    for (int64_t rounds : {1, 4, 16})
      b->Args({rounds, busy});
}

} // namespace

int main(int argc, char **argv) {
  arguments(benchmark::RegisterBenchmark("ours", loops, ours));
  if (gomp)
    arguments(benchmark::RegisterBenchmark("libgomp", loops, libgomp));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
