//===- PipeDreamMemory.h - what a stage of PipeDream keeps ------*- C++ -*-===//
//
// PipeDream's own test counts the stashed weights and activations of the
// minibatches in flight; here the live copy counts too, as in its runtime: a
// stage of r replicas, with D devices from it to the end, keeps its weights and
// outputs ceil(D / r) times.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/CutStates.h"

namespace pipec::published {

struct PipeDreamLevel;
struct PipeDreamPlan;

/// Of the stage between two states, on each of its devices.
inline double stageBytes(const CutStates &states, size_t before, size_t after,
                         int devicesFromHere, int replicas) {
  return (states.kept[after] - states.kept[before]) *
         ((devicesFromHere + replicas - 1) / replicas);
}

/// The most that any stage of the plan keeps on a device.
double mostBytes(const CutStates &states, const PipeDreamPlan &plan);

/// Some plan of which every stage keeps at most `limit` bytes on a device, on
/// at most so many devices, stages replicated in any way on devices in order;
/// no stages where there is none. Its seconds are not known.
PipeDreamPlan planWithin(const CutStates &states, double limit, int devices);

/// The same where replicas keep to a machine of every level or take whole ones.
PipeDreamPlan planWithin(const CutStates &states,
                         const std::vector<PipeDreamLevel> &levels,
                         double limit);

/// The plan that keeps least on at most so many devices, stages replicated in
/// any way on devices in order; its seconds are not known.
PipeDreamPlan leastPlan(const CutStates &states, int devices);

/// The same where replicas keep to a machine of every level or take whole ones,
/// to a thousandth.
PipeDreamPlan leastPlan(const CutStates &states,
                        const std::vector<PipeDreamLevel> &levels);

/// The least that some stage of every plan of at most so many devices keeps on
/// one, stages replicated in any way.
double leastBytes(const CutStates &states, int devices);

} // namespace pipec::published
