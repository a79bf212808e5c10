//===- Published.h - cost-blind orders to start from ------------*- C++ -*-===//
//
// The published orders behind the schedules that are searched for the costs at
// hand (Searched.cpp): exactly what the papers give, whatever the costs.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Generator.h"

namespace pipec::schedule {

/// When device i runs the two forwards and two input gradients of microbatch 0,
/// in slots of one task; microbatch k follows 6k slots later.
struct VBlock {
  int forward[2];  ///< chunk 0, 1
  int backward[2]; ///< chunk 0, 1
};

/// The building blocks of V-Min and V-Half for device i of p.
VBlock vMinBlock(int p, int i);
VBlock vHalfBlock(int p, int i);

/// What is done to a repeated block at unit cost without raising the peak.
enum class Squeeze {
  None,
  Gaps, ///< those at both ends are closed
  /// Tasks go forwards into gaps; then, after a device's last forward, weight
  /// gradients wait where others need what comes after them.
  WeightsLast,
};

/// The block repeated for every microbatch, weight gradients in the free slots
/// in order. Squeezed: the published V-Min and V-Half, or better.
Schedule repeatBlock(const ScheduleRequest &request, VBlock (*block)(int, int),
                     Squeeze squeeze);

/// A block of whole backwards on a V, repeated: 1F1B-V. There are several of
/// equal memory, told apart by `variant` (from 0, any number).
Schedule wholeBackwardsV(const ScheduleRequest &request, int variant);

/// ZB-H1 (factor 1), ZB-H2 (factor 2) and what lies between: factor*(P-1-r)
/// forwards of warm-up on device r, weight gradients factor*r backwards late.
Schedule zbHandcrafted(const ScheduleRequest &request, double factor);

/// ZB-V's closed form for equal times.
Schedule zbVClosedForm(const ScheduleRequest &request);

} // namespace pipec::schedule
