//===- Links.h - messages between GPUs --------------------------*- C++ -*-===//
//
// A rank's links queue messages on its communication stream: nothing waits for
// the device. A message is done when both ends are; every rank queues its
// messages in the order of IssueOrder.h, which makes sure that all of them end.
//
// Adding one: a file here and a row in links.def.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/device/cuda/Driver.h"
#include "runtime/program/Plan.h"

#include <memory>
#include <vector>

namespace pipec {

/// One rank's end. Used by one thread at a time.
class Links {
public:
  struct Message {
    bool sending;
    int peer, tag;
    char *data; ///< in the device's memory
    int64_t bytes;
  };

  virtual ~Links() = default;

  /// The number of a rank's GPU among those that this process sees, modulo how
  /// many there are.
  virtual int deviceOf(const plan::Rank &rank) const = 0;

  /// The rank's device is open; all ranks attach before any sends.
  /// Failure(Unavailable).
  virtual void attach(cuda::Context context, int device, cuda::Stream compute,
                      cuda::Stream communication, Watch &watch) = 0;

  /// Instead of attach(), where the rank's device cannot be opened: all ranks
  /// fail alike.
  virtual void decline(const Failure &, Watch &) {}

  /// Queues the messages, which go at the same time. `operation`: what a rank
  /// is doing meanwhile.
  virtual void exchange(const std::vector<Message> &messages,
                        const Operation &operation) = 0;

  /// \name Recording a part of a step
  /// All ranks begin, end and replay together. The compute stream is recorded,
  /// and what depends on it.
  /// @{
  virtual void beginCapture() = 0;
  virtual void endCapture() = 0;
  /// Queues what was recorded as part `part`, in the order of endCapture().
  virtual void replay(int part) = 0;
  /// @}

  /// Throws where a connection has failed of which nothing else tells: what
  /// waits for the device asks again and again.
  virtual void checkPeers() {}

  /// The job fails: whatever waits for a peer ends. Called by any thread.
  virtual void abandon() {}
};

/// What links are made from.
struct LinksRequest {
  int ranks = 1;
  Transport *transport = nullptr; ///< of this process's rank; null for threads
};

/// A row of links.def.
struct LinksRow {
  const char *name;
  /// The links of all ranks of this process.
  std::vector<std::unique_ptr<Links>> (*open)(const LinksRequest &request);
};

/// Failure(Internal) for a name that no row has.
const LinksRow &linksNamed(const std::string &name);

} // namespace pipec
