//===- Scratch.h - memory that libraries work in ----------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Driver.h"

#include <utility>

namespace pipec::cuda {

/// Memory that grows while plans are made: before anything is recorded.
struct Scratch {
  Address memory = 0;
  size_t bytes = 0;

  Scratch() = default;
  Scratch(const Scratch &) = delete;
  ~Scratch() {
    if (memory)
      Driver::get().release(memory);
  }
  /// False when there is not that much; it stays as it was.
  bool reserve(size_t wanted) {
    if (wanted <= bytes)
      return true;
    const size_t before = std::exchange(bytes, 0);
    if (const Address old = std::exchange(memory, 0)) // waits for the device
      Driver::get().check(Driver::get().release(old), "cuMemFree");
    if (allocate(wanted))
      return true;
    if (before)
      allocate(before);
    return false;
  }

private:
  bool allocate(size_t wanted) {
    const Driver &cuda = Driver::get();
    const int result = cuda.allocate(&memory, wanted);
    if (result == kOutOfMemory)
      return false;
    cuda.check(result, "memory for cuDNN");
    bytes = wanted;
    return true;
  }
};

} // namespace pipec::cuda
