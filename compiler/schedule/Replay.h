//===- Replay.h - untimed execution of the per-device programs --*- C++ -*-===//
//
// The devices as communicating processes: each takes its inputs, computes, and
// sends, in list order. Such a network is deterministic: whether it finishes
// does not depend on speeds, so one untimed run decides it for all costs.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Schedule.h"

#include <optional>
#include <string>
#include <vector>

namespace pipec::schedule {

struct ReplayOptions {
  /// Messages a directed pair can hold; -1 unbounded, 0 rendezvous.
  int buffers = -1;
  /// Not empty: after each updateEvery[s] backwards of stage s, its copies
  /// meet to average gradients; one that is early waits.
  std::vector<int> updateEvery;
};

/// A device that can never go on, and the circle of waits it is part of.
struct Stuck {
  int device, position;
  std::string cycle;
};

/// Nothing when the programs finish.
std::optional<Stuck> replay(const Schedule &schedule,
                            const ReplayOptions &options);

/// The task whose output `action` takes from another stage (as F or as the
/// backward of that stage, written B), if any.
std::optional<Action> producerOf(const Schedule &schedule,
                                 const Action &action);
/// The device that takes the output of `action`, -1 if none does.
int consumerOf(const Schedule &schedule, const Action &action);

} // namespace pipec::schedule
