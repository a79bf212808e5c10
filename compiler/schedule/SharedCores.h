//===- SharedCores.h - an order on devices that share cores -----*- C++ -*-===//
//
// Ranks on CPUs may outnumber the cores of their server. They then take turns:
// while more devices compute than there are cores, each is slowed alike. What
// one device does not use, another gets, so that idle time in the order costs
// less than on devices of their own.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Simulator.h"

namespace pipec::schedule {

struct CoreSharing {
  int cores = 0;           ///< of each server; 0: every device has its own
  std::vector<int> server; ///< of each device
  /// Equal devices of that server that this one stands for (replicas that do
  /// the same at the same time); empty: 1 each.
  std::vector<int> copies;

  /// Whether devices can outnumber the cores of some server.
  bool scarce() const;
};

struct SharedTimeline {
  /// busy counts the time spent computing, also when it is slow.
  Timeline line;
  double finish = 0; ///< when every device has done its tail
};

/// As simulate(), with the cores shared; costs are those of a device that has
/// its core to itself. `tail` is what each device computes after its last
/// action. O(actions x devices). Throws Failure(BadPlan) on a deadlock.
SharedTimeline simulateShared(const Schedule &schedule, const Costs &costs,
                              const CoreSharing &sharing,
                              const std::vector<double> &tail = {});

} // namespace pipec::schedule
