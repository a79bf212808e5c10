//===- StreamExchange.h - groups of messages between GPUs -------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Gpu.h"
#include "runtime/exec/Exchange.h"

namespace pipec {

/// A group comes after all messages queued before it. When it `joins` the
/// tasks, it comes after all of those queued before, and before all after it.
class StreamExchange : public Exchange {
public:
  explicit StreamExchange(cuda::Gpu &gpu, bool joins = true)
      : gpu(gpu), joins(joins) {}

  void send(int to, int tag, const char *data, int64_t bytes) override {
    group.push_back({true, to, tag, const_cast<char *>(data), bytes});
  }
  void receive(int from, int tag, char *data, int64_t bytes) override {
    group.push_back({false, from, tag, data, bytes});
  }
  void run(const char *what, int stage, int64_t step) override {
    using Queue = cuda::Gpu::Queue;
    if (group.empty())
      return;
    Operation operation;
    operation.what = what;
    operation.stage = stage;
    operation.step = step;
    if (joins)
      gpu.wait(Queue::Communication, gpu.record(Queue::Compute));
    gpu.exchange(group, operation);
    if (joins)
      gpu.wait(Queue::Compute, gpu.record(Queue::Communication));
    group.clear();
  }

private:
  cuda::Gpu &gpu;
  const bool joins;
  std::vector<Links::Message> group;
};

} // namespace pipec
