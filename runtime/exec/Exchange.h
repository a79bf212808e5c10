//===- Exchange.h - messages between the memories of ranks ------*- C++ -*-===//
#pragma once

#include <cstdint>

namespace pipec {

/// Groups of messages between buffers of ranks' devices. Whatever reads or
/// writes a buffer after run() comes after the messages.
class Exchange {
public:
  virtual ~Exchange() = default;

  /// \name Of the next group
  /// Messages from one rank to another with the same tag are received in the
  /// order they are sent.
  /// @{
  virtual void send(int to, int tag, const char *data, int64_t bytes) = 0;
  virtual void receive(int from, int tag, char *data, int64_t bytes) = 0;
  /// @}

  /// All messages of the group at once. `what`, `stage` and `step` say what a
  /// rank waits for (Watch.h).
  virtual void run(const char *what, int stage, int64_t step) = 0;
};

} // namespace pipec
