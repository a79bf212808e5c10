//===- SharedCores.h - an order on devices that share cores -----*- C++ -*-===//
//
// Ranks on CPUs may outnumber the cores of their server. Those that have the
// same core take turns: while several of them compute, each is slowed alike.
// What one does not use, another gets, so that idle time in the order costs
// less than on devices of their own.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Simulator.h"

namespace pipec::schedule {

struct CoreSharing {
  std::vector<int> core; ///< of each device; empty: every one has its own
  /// Equal devices of that core that this one stands for (replicas that do the
  /// same at the same time); empty: 1 each.
  std::vector<int> copies;

  /// Whether some core has several devices.
  bool scarce() const;
};

struct SharedTimeline {
  /// Of the first step. busy counts the time spent computing, also when it is
  /// slow.
  Timeline line;
  std::vector<double> finish; ///< step -> when every device has done its tail
};

/// Steps without a barrier between them, as in Handover.
struct SharedSteps {
  int count = 1;
  std::vector<int> ahead; ///< of steps after the first
  double latency = 0;     ///< of the norm's and the verdict's way, each
};

/// As simulate(), with the cores shared; costs are those of a device that has
/// its core to itself. `tail` is what each device computes after its last
/// action; of several steps a device does its tail when the one before it has
/// begun its own. O(actions x devices). Throws Failure(BadPlan) on a deadlock.
SharedTimeline simulateShared(const Schedule &schedule, const Costs &costs,
                              const CoreSharing &sharing,
                              const std::vector<double> &tail = {},
                              const SharedSteps &steps = {});

} // namespace pipec::schedule
