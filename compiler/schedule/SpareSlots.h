//===- SpareSlots.h - room for messages that come early ---------*- C++ -*-===//
//
// A rank posts its receives in the order of its tasks, each as soon as it has a
// slot for what comes, and a task that sends waits until what its slot held has
// been taken. An order that sends long before it takes therefore stands still
// unless stages have more slots than their own microbatches need. A plan's
// program is checked for that (runtime/program/PlanCheck); here it is found of
// an order, and of who sends to whom.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Schedule.h"

#include <compare>

namespace pipec::schedule {

/// Who takes what a stage sends from its two slots for that, by turns.
struct Sends {
  /// By stage, ascending; of values not those that are sent from where their
  /// stage keeps them, whose slot is free when their microbatch is done. Both
  /// empty: the next stage takes values, the one before gradients.
  std::vector<std::vector<int>> values, gradients;
  bool keepsValues = false; ///< where they are empty: values are all kept
  auto operator<=>(const Sends &) const = default;
};

/// Further slots of each stage with which a plan of `schedule` ends: 0, or the
/// first power of 2 that is enough; as many as there are microbatches always
/// are.
int spareSlots(const Schedule &schedule, const Sends &sends);

} // namespace pipec::schedule
