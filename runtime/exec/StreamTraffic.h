//===- StreamTraffic.h - traffic between GPUs -------------------*- C++ -*-===//
//
// Queues tasks' messages on a GPU's communication stream, in the order of
// IssueOrder.h. Nothing waits for the device: events say what comes after what.
//   * a message leaves after the task that made it;
//   * it arrives after the last task that used the slot;
//   * a task begins after its messages have arrived, and after those have left
//     whose slots it writes.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/device/cuda/Gpu.h"
#include "runtime/exec/RankState.h"
#include "runtime/exec/Traffic.h"
#include "runtime/program/IssueOrder.h"

#include <map>

namespace pipec {

/// Of step programs. An update is never refused here: takeBack, restart and
/// shorten are not called (the compiler plans no such strategies for GPUs).
class StreamTraffic : public Traffic {
public:
  StreamTraffic(RankState &state, cuda::Gpu &gpu);

  void start(const plan::Sequence &sequence, int64_t step) override;
  void before(const plan::Task &task) override;
  void after(const plan::Task &task) override;
  void finish() override;
  void takeBack(const std::vector<int64_t> &before) override;
  void restart(const std::vector<int64_t> &before) override;
  void shorten(const plan::Sequence &sequence, int64_t end) override;

private:
  using Slot = plan::Slot;
  using Arrival = std::pair<int, int>; // edge, slot of its target

  void issueMessages();
  void issue(const plan::Issue &message);

  RankState &state;
  const plan::Plan &plan;
  cuda::Gpu &gpu;
  std::vector<plan::StageEdges> edges;
  std::vector<plan::Issue> order; ///< this rank's
  size_t next = 0;                ///< of `order`
  int64_t step = 0;
  bool open = false; ///< between start() and finish()

  // Events of this step, null where nothing has to be waited for.
  std::map<Slot, cuda::Event> made;       ///< what a slot holds to be sent
  std::map<Slot, cuda::Event> left;       ///< the last message from a slot
  std::map<Slot, cuda::Event> used;       ///< the last task that read a slot
  std::map<Arrival, cuda::Event> arrived; ///< the message in a slot
};

} // namespace pipec
