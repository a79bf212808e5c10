//===- SharedCores.h - an order on devices that share cores -----*- C++ -*-===//
//
// Ranks on CPUs may outnumber the cores of their server. They then take turns.
// On a core that each keeps to one computes at a time, and the next who is ready
// when it has done its action (or after a time slice); on several cores that
// they share all are slowed alike while more compute than there are cores. What
// one does not use, another gets, so that idle time in the order costs less than
// on devices of their own.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Simulator.h"

#include <map>

namespace pipec::schedule {

struct CoreSharing {
  /// So many equal devices (replicas that do the same at the same time) that
  /// share the cores of a group.
  struct Share {
    int group = 0, devices = 1;
  };
  /// Of each device of the order, for all that it stands for, which are as slow
  /// as the slowest of them; empty: every one has its own core.
  std::vector<std::vector<Share>> shares;
  std::map<int, int> cores; ///< of each group

  /// Whether some group has more devices than cores.
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
