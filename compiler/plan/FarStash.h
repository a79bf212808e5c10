//===- FarStash.h - what a stash costs that left the caches -----*- C++ -*-===//
//
// Every microbatch in flight keeps its activations in a slot of its own:
//
//   gpipe  F0 F1 F2 F3 B0 B1 B2 B3     four slots between F0 and B0
//   1f1b   F0 B0 F1 B1 F2 B2 F3 B3     one, of the last stage
//
// The times of a graph's nodes are those of two slots, of a core that goes
// through kFarCaches of its own caches at most. Where it goes through more a
// forward writes a slot that others, or large weights, have pushed out of the
// caches, and the backward reads it when they have again; every line that comes
// in sends another one back. Searches rank splits and orders without it: plans
// are judged with it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Planner.h"

#include <vector>

namespace pipec::plan {

/// Seconds of each byte that a core writes in passes over `bytes`
/// (DeviceModel::passes): between two that were timed by their logarithms, as
/// the nearest one outside of them; 0 where none was.
double passSeconds(const DeviceModel &device, double bytes);

/// Sets the stages' farStashSeconds from their memory, and adds them to the
/// times of the forward and of both backward tasks together.
void addFarStash(const Topology &topology, std::vector<StagePlan> &stages);

/// The times of nodes that were measured in `stages`, as such of two slots:
/// what addFarStash() has added is taken off, up to half of each.
void takeOffFarStash(const std::vector<StagePlan> &stages, CostGraph &graph);

} // namespace pipec::plan
