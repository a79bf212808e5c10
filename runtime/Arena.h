//===- Arena.h - the one allocation of a rank -------------------*- C++ -*-===//
#pragma once

#include "runtime/device/Device.h"

namespace pipec {

/// A rank's tensors live in one allocation of the size the plan predicts, made
/// and touched at start-up. Pieces are handed out once and never returned.
class Arena {
public:
  /// Failure(NoFit) when the device does not have that much memory.
  Arena(Device &device, int64_t bytes);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  /// A zeroed piece at a multiple of 64, rounded up to 64 bytes.
  /// Failure(Internal) when the arena is too small: the prediction was wrong.
  char *take(int64_t bytes);

  /// Bytes handed out, at most.
  int64_t peak() const { return used; }

private:
  Device &device;
  char *memory = nullptr;
  int64_t size = 0, used = 0;
};

} // namespace pipec
