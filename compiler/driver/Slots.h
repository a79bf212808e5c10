//===- Slots.h - which buffer a microbatch uses -----------------*- C++ -*-===//
//
// A stage keeps one slot of a region for every microbatch that is in it. Slots
// are handed out by following a rank's order: how many there must be, and which
// one each action uses, is thereby known before anything runs.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "compiler/schedule/Schedule.h"
#include "runtime/program/RegionSlots.h"

#include <vector>

namespace pipec {

/// What a stage of a rank needs to know to count slots.
struct SlotRequest {
  bool receivesForward = false;  ///< IN is written by messages
  bool receivesBackward = false; ///< GRAD_IN too
  bool splitBackward = false;
  int spare = 0; ///< slots of IN and GRAD_IN for more messages that come early
};

struct SlotPlan {
  /// How many of every region but stats, whose slots are the microbatches.
  plan::RegionSlots counts;
  /// For each action of the order (of this stage or not: then empty) its slots.
  std::vector<plan::RegionSlots> used;
};

/// Follows `order` (one device) for one stage. IN and STASH are held from the
/// forward to the end of the backward pass, GRAD_IN through the backward pass,
/// WSTASH from I to W, OUT and GRAD_OUT until their message has left. An order
/// of forwards alone holds nothing longer than the forward. A region
/// that messages are written to has one slot more, so that the next message can
/// arrive while all microbatches in flight hold theirs.
SlotPlan assignSlots(const std::vector<schedule::Action> &order, int stage,
                     const SlotRequest &request);

} // namespace pipec
