//===- MeasurePasses.cpp - times of passes over memory --------------------===//
#include "compiler/driver/MeasurePasses.h"

#include "support/Clock.h"
#include "support/Median.h"

#include <algorithm>
#include <barrier>
#include <memory>
#include <new>
#include <numeric>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace pipec {
namespace {

using Pages = std::shared_ptr<float[]>;

/// On large pages, as the memory of a plan is.
Pages makePages(int64_t bytes) {
  constexpr auto kPage = static_cast<std::align_val_t>(2 << 20);
  auto *memory =
      static_cast<float *>(::operator new[](static_cast<size_t>(bytes), kPage));
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return {memory, [](float *p) { ::operator delete[](p, kPage); }};
}

/// Seconds in which all of it is written, as by forwards; between two times it
/// is read, as by backwards.
double secondsOfPass(float *memory, int64_t bytes) {
  constexpr double kEach = 0.01;
  constexpr int64_t kLine = 16; // of floats
  const int64_t count = bytes / 4;
  std::vector<double> times;
  float value = 1;
  std::fill_n(memory, count, value);
  const double end = now() + kEach;
  do {
    for (int64_t i = 0; i < count; i += kLine)
      value = std::max(value, memory[i]);
    const double begin = coreSeconds();
    std::fill_n(memory, count, value + 1);
    times.push_back(coreSeconds() - begin);
  } while (now() < end || times.size() < 3);
  return median(std::move(times));
}

/// The mean over `workers` threads at once.
double secondsOfPasses(int64_t bytes, int workers) {
  std::vector<double> times(static_cast<size_t>(workers));
  std::vector<Pages> pages(times.size());
  std::generate(pages.begin(), pages.end(), [&] { return makePages(bytes); });
  std::barrier start(workers);
  auto work = [&](size_t worker) {
    start.arrive_and_wait();
    times[worker] = secondsOfPass(pages[worker].get(), bytes);
  };
  std::vector<std::thread> others;
  for (size_t w = 1; w < times.size(); ++w)
    others.emplace_back(work, w);
  work(0);
  for (std::thread &other : others)
    other.join();
  return std::accumulate(times.begin(), times.end(), 0.0) / workers;
}

} // namespace

std::vector<plan::CachePass> measurePasses(int workers, int64_t own) {
  // Together more than any caches, and less than a container has.
  constexpr int64_t kMost = 128 << 20, kTogether = int64_t(2) << 30;
  const int64_t memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
                most =
                    std::min(kMost, std::min(kTogether, memory / 8) / workers);
  std::vector<plan::CachePass> passes;
  for (int64_t bytes = own / 2; bytes <= most; bytes *= 2)
    passes.push_back(
        {static_cast<double>(bytes),
         secondsOfPasses(bytes, workers) / static_cast<double>(bytes)});
  return passes;
}

} // namespace pipec
