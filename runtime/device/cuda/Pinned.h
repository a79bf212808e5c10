//===- Pinned.h - host memory that devices read and write -------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Driver.h"

#include <algorithm>
#include <vector>

namespace pipec::cuda {

/// One piece of page-locked memory.
class Pinned {
public:
  explicit Pinned(int64_t bytes) : size(bytes) {
    const Driver &cuda = Driver::get();
    cuda.check(
        cuda.allocateHost(&memory, static_cast<size_t>(bytes), kPortable),
        "cuMemHostAlloc");
  }
  Pinned(Pinned &&other) noexcept : memory(other.memory), size(other.size) {
    other.memory = nullptr;
  }
  ~Pinned() {
    if (memory)
      Driver::get().releaseHost(memory);
  }
  Pinned(const Pinned &) = delete;

  char *data() const { return static_cast<char *>(memory); }
  int64_t bytes() const { return size; }

private:
  void *memory = nullptr;
  int64_t size;
};

/// Pieces that are handed out one after the other and taken back together: the
/// same sizes in the same order get the same places.
class PinnedPool {
public:
  char *take(int64_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    while (block < blocks.size() && used + bytes > blocks[block].bytes())
      ++block, used = 0;
    if (block == blocks.size()) {
      blocks.emplace_back(std::max(bytes, kBlockBytes));
      used = 0;
    }
    char *piece = blocks[block].data() + used;
    used += bytes;
    return piece;
  }

  struct Position {
    size_t block = 0;
    int64_t used = 0;
  };
  Position position() const { return {block, used}; }
  void rewind(const Position &to) { block = to.block, used = to.used; }

private:
  static constexpr int64_t kBlockBytes = 1 << 20;
  std::vector<Pinned> blocks;
  size_t block = 0;
  int64_t used = 0;
};

} // namespace pipec::cuda
