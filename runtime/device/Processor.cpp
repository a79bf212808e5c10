//===- Processor.cpp - ranks that compute on the machine itself -----------===//
#include "runtime/device/Device.h"
#include "runtime/exec/GradientNorm.h"
#include "runtime/exec/HostExchange.h"
#include "runtime/exec/HostTraffic.h"
#include "runtime/kernels/cpu/SharingTrials.h"
#include "runtime/program/Sequence.h"
#include "support/Clock.h"
#include "support/Environment.h"
#include "support/Exhausted.h"
#include "support/TinyNumbers.h"

#include <cstring>
#include <dlfcn.h>
#include <map>
#include <sys/mman.h>
#include <sys/sysinfo.h>

namespace pipec {
namespace {

/// Huge pages, whole and aligned, also for a small arena: where 4 KiB pages lie
/// decides which of them drive each other out of the caches, and that is
/// another matter in every process.
constexpr size_t kHugePage = size_t(2) << 20;

size_t inHugePages(int64_t bytes) {
  return (static_cast<size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage;
}

/// MAP_FAILED where there is no memory.
void *mapHugePages(size_t size) {
  void *mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return mapped;
  char *const start = static_cast<char *>(mapped);
  const size_t over = reinterpret_cast<uintptr_t>(start) % kHugePage;
  const size_t before = over ? kHugePage - over : 0;
  if (before)
    munmap(start, before);
  if (before < kHugePage)
    munmap(start + before + size, kHugePage - before);
  madvise(start + before, size, MADV_HUGEPAGE);
  return start + before;
}

class Processor : public Device {
public:
  char *allocate(int64_t bytes) override {
    struct sysinfo info{};
    const bool known = sysinfo(&info) == 0;
    const int64_t machine =
        known ? static_cast<int64_t>(info.totalram) * info.mem_unit : INT64_MAX;
    void *mapped =
        bytes > machine ? MAP_FAILED : mapHugePages(inHugePages(bytes));
    if (mapped == MAP_FAILED)
      throw Failure(
          Exit::NoFit,
          "a rank needs " + std::to_string(bytes) + " bytes, " +
              (bytes > machine
                   ? "this machine has " + std::to_string(machine)
                   : "which this process does not get" + addressLimit()) +
              "; compile with more stages, fewer microbatches in "
              "flight or --recompute full" +
              (bytes > machine ? "" : ", or raise what limits it"));
    // Page faults now, not in the first step.
    std::memset(mapped, 0, static_cast<size_t>(bytes));
    return static_cast<char *>(mapped);
  }

  void release(char *memory, int64_t bytes) override {
    munmap(memory, inHugePages(bytes));
  }

  void read(const char *from, int64_t bytes,
            const std::function<void(const char *, int64_t)> &use) override {
    use(from, bytes);
  }
  void
  write(char *to, int64_t bytes,
        const std::function<void(char *, int64_t, int64_t)> &make) override {
    make(to, 0, bytes);
  }
  void feed(char *to, int64_t,
            const std::function<void(char *)> &make) override {
    make(to);
  }
  const float *fetch(const char *from) override {
    return reinterpret_cast<const float *>(from);
  }
  void copy(char *to, const char *from, int64_t bytes) override {
    if (bytes)
      std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void clear(char *at, int64_t bytes) override {
    std::memset(at, 0, static_cast<size_t>(bytes));
  }

  PipecDevice *adopt(void *, const std::string &) override { return nullptr; }
  void run(PipecTask task, PipecFrame &frame) override {
    if (!share || threads() == 1)
      return task(&frame);
    cpu::SharingTrials &of = trials[task];
    share(of.next());
    const double begin = now();
    task(&frame);
    of.took(now() - begin);
  }

  void sum(float *to, const std::vector<const float *> &terms,
           int64_t count) override {
    for (int64_t i = 0; i < count; ++i) {
      float sum = terms[0][i];
      for (size_t term = 1; term < terms.size(); ++term)
        sum += terms[term][i];
      to[i] = sum;
    }
  }
  double norm(const float *values, int64_t count) override {
    return pipec::norm(values, count);
  }

  Mark mark() override { return {0, 0, now(), coreSeconds()}; }
  void resolve(Mark &) override {}
  void settle() override {}
  bool isImmediate() const override { return true; }
  void begin(int) override {}
  void end(int) override {}

  std::unique_ptr<Traffic> traffic(RankState &state, Transport &transport,
                                   Watch &watch) override {
    return std::make_unique<HostTraffic>(state, transport, watch);
  }
  std::unique_ptr<Exchange> exchange(Transport &transport,
                                     Watch &watch) override {
    return std::make_unique<HostExchange>(transport, watch);
  }

private:
  // The program's kernels, where it has them and nobody wants all loops shared.
  using Share = void (*)(int64_t);
  using Threads = int (*)();
  const Share share =
      isWished("PIPEC_LOOPS", "shared")
          ? nullptr
          : reinterpret_cast<Share>(dlsym(RTLD_DEFAULT, "pipec_share_from"));
  const Threads threads =
      reinterpret_cast<Threads>(dlsym(RTLD_DEFAULT, "pipec_threads"));
  std::map<PipecTask, cpu::SharingTrials> trials;
};

} // namespace

std::unique_ptr<Device> openProcessor(const DeviceRequest &request) {
  if (!plan::forwardOnly(request.plan))
    flushTinyNumbers();
  return std::make_unique<Processor>();
}

} // namespace pipec
