//===- Simulator.h - as-soon-as-possible execution of an order --*- C++ -*-===//
#pragma once

#include "compiler/schedule/Costs.h"
#include "compiler/schedule/Schedule.h"

#include <vector>

namespace pipec::schedule {

/// When everything happens and what memory it needs. Indexed like
/// Schedule::order: [device][position].
struct Timeline {
  std::vector<std::vector<double>> start, end;
  /// Memory of the device after that action.
  std::vector<std::vector<double>> memory;
  std::vector<double> peak; ///< per device, largest memory after any action
  std::vector<double> busy; ///< per device, sum of its action times

  double makespan = 0; ///< last end - first start over all devices
  double span = 0;     ///< max over devices of own last end - own first start
  double work = 0;     ///< busiest device's busy time: the ideal

  double maxPeak() const;
  /// \name The three bubbles in use (SYSTEMS: R1, R2, R3)
  /// @{
  double bubbleOverIdeal() const; ///< R1: (makespan - work) / work
  double bubbleMakespan() const;  ///< R2: (makespan - work) / makespan
  double bubbleSpan() const;      ///< R3: (span - work) / span
  /// @}
};

/// How a step follows another one without a barrier between them.
struct Handover {
  std::vector<double> release; ///< device -> when it has made its last update
  /// device -> actions it may run before the verdict on that update, which goes
  /// from the last device to the first, from each once it has run its own.
  std::vector<int> ahead;
  double latency = 0; ///< of the verdict's way from device to device
};

struct SimulateOptions {
  /// A directed link between two devices carries one transfer at a time, in
  /// the order the sender produces them.
  bool linkOccupancy = false;
  /// Messages a directed pair of devices can hold before the consumer takes
  /// them; a send that finds no room keeps its device waiting. -1: no bound.
  /// 0: rendezvous, the send waits until its consumer stands at the receive,
  /// which it posts right before the action that needs the data.
  int buffers = -1;
  /// Schedule::pairs start together when both have their inputs, take the sum
  /// of their times and give both results at the end.
  bool fusePairs = false;
  /// The step before, if it may still run elsewhere.
  const Handover *after = nullptr;
};

/// O(actions). Throws Failure(BadPlan) naming device and action when the order
/// deadlocks or an input is never produced; call verify() for a full diagnosis.
Timeline simulate(const Schedule &schedule, const Costs &costs,
                  const SimulateOptions &options = {});

} // namespace pipec::schedule
