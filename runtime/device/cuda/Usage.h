//===- Usage.h - what the ranks of a process have of its GPUs ---*- C++ -*-===//
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace pipec::cuda {

/// Bytes that ranks have allocated, by device.
class Usage {
public:
  static Usage &get() {
    static Usage usage;
    return usage;
  }

  /// A rank opens the device. True for the first one: it answers for what is
  /// not a single rank's.
  bool open(int device) {
    std::lock_guard lock(mutex);
    return ranks[device]++ == 0;
  }
  void close(int device) {
    std::lock_guard lock(mutex);
    --ranks[device];
  }
  void add(int device, int64_t count) {
    std::lock_guard lock(mutex);
    bytes[device] += count;
  }
  int64_t of(int device) {
    std::lock_guard lock(mutex);
    return bytes[device];
  }

private:
  std::mutex mutex;
  std::map<int, int64_t> bytes;
  std::map<int, int> ranks;
};

} // namespace pipec::cuda
