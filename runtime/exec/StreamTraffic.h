//===- StreamTraffic.h - traffic between GPUs -------------------*- C++ -*-===//
//
// Queues tasks' messages on a GPU's communication stream, in the order of
// IssueOrder.h. Nothing waits for the device: events say what comes after what.
//   * a message leaves after the task that made it;
//   * it arrives after the last task that used the slot;
//   * a task begins after its messages have arrived, and after those have left
//     whose slots it writes;
//   * gradients are summed over replicas, on the communication stream, after
//     the last call that adds to them.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/device/cuda/Gpu.h"
#include "runtime/exec/GradientTrace.h"
#include "runtime/exec/RankState.h"
#include "runtime/exec/ReplicaSum.h"
#include "runtime/exec/StreamExchange.h"
#include "runtime/exec/Traffic.h"
#include "runtime/program/IssueOrder.h"

#include <map>

namespace pipec {

/// An update is never refused here and a stream never cut short: takeBack,
/// restart and shorten are not called (the compiler plans no such strategies
/// for GPUs, and StreamExecutor ends what it has begun).
class StreamTraffic : public Traffic {
public:
  StreamTraffic(RankState &state, cuda::Gpu &gpu);

  void start(const plan::Sequence &sequence, int64_t step,
             int64_t end) override;
  void before(const plan::Task &task) override;
  void after(const plan::Task &task) override;
  void beforeRound() override;
  void finish() override;
  bool sumsGradients() const override { return !streams; }
  void takeBack(const std::vector<int64_t> &before) override;
  void restart(const std::vector<int64_t> &before) override;
  void shorten(const plan::Sequence &sequence, int64_t end) override;

private:
  using Slot = plan::Slot;
  using Arrival = std::pair<int, int>; // edge, slot of its target

  /// The gradients of a stage whose replicas are summed.
  struct Sums {
    StageUnit *unit;
    plan::Buckets buckets;
    char kind; ///< of the stage's last task
    std::vector<CompleteBucket> order;
    cuda::Event complete = nullptr; ///< the stage's last task so far
  };

  void issueMessages();
  void expectSums();
  void issue(const plan::Issue &message);
  void issueSum(const plan::Issue &sum, cuda::Event complete);
  /// What follows `task` and is summed while it runs.
  void sumDuring(const plan::Task &task);

  RankState &state;
  const plan::Plan &plan;
  const bool streams; ///< stream programs
  cuda::Gpu &gpu;
  std::vector<plan::StageEdges> edges;
  std::vector<plan::Issue> order; ///< this rank's
  size_t next = 0;                ///< of `order`
  int64_t step = 0;
  bool open = false; ///< between start() and finish()
  std::map<int, Sums> sums; ///< by stage
  StreamExchange exchange;
  ReplicaSum replicas;

  // Events of this step, null where nothing has to be waited for.
  std::map<Slot, cuda::Event> made;       ///< what a slot holds to be sent
  std::map<Slot, cuda::Event> left;       ///< the last message from a slot
  std::map<Slot, cuda::Event> used;       ///< the last task that read a slot
  std::map<Arrival, cuda::Event> arrived; ///< the message in a slot
};

} // namespace pipec
