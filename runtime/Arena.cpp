//===- Arena.cpp - the one allocation of a rank ---------------------------===//
#include "runtime/Arena.h"
#include "runtime/program/Memory.h"
#include "support/Failure.h"

#include <cstring>
#include <string>
#include <sys/mman.h>
#include <sys/sysinfo.h>

namespace pipec {

Arena::Arena(int64_t bytes) : size(bytes) {
  if (bytes == 0)
    return;
  struct sysinfo info{};
  const bool known = sysinfo(&info) == 0;
  const int64_t machine =
      known ? static_cast<int64_t>(info.totalram) * info.mem_unit : INT64_MAX;
  void *mapped = bytes > machine ? MAP_FAILED
                                 : mmap(nullptr, static_cast<size_t>(bytes),
                                        PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw Failure(Exit::NoFit,
                  "a rank needs " + std::to_string(bytes) +
                      " bytes, this machine has " + std::to_string(machine) +
                      "; compile with more stages, fewer microbatches in "
                      "flight or --recompute full");
  memory = static_cast<char *>(mapped);
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  // Page faults now, not in the first step.
  std::memset(memory, 0, static_cast<size_t>(bytes));
}

Arena::~Arena() {
  if (memory)
    munmap(memory, static_cast<size_t>(size));
}

char *Arena::take(int64_t bytes) {
  const int64_t rounded = plan::alignUp(bytes);
  if (rounded > size - used)
    throw Failure(Exit::Internal,
                  "the arena of " + std::to_string(size) +
                      " bytes is too small: the plan's prediction is wrong");
  char *piece = memory + used;
  used += rounded;
  return piece;
}

} // namespace pipec
