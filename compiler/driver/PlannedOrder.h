//===- PlannedOrder.h - the order that a plan is run in ---------*- C++ -*-===//
#pragma once

#include "compiler/driver/Planning.h"

namespace pipec {

/// The order that was found for the costs, verified.
schedule::Schedule foundOrder(const Decision &decision);

/// The order of a plan whose strategy has one of its own.
schedule::Schedule scheduleFor(const Decision &decision);

/// Stages have either whole or split backward tasks: where an order has both
/// (as DualPipe's), a whole one becomes its two halves, one after the other.
void splitWholeBackwards(schedule::Schedule &schedule);

} // namespace pipec
