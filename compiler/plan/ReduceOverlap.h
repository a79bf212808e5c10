//===- ReduceOverlap.h - gradients summed during the backward ---*- C++ -*-===//
//
// GPUs sum the gradients of a stage's replicas while they compute, as the
// runtime does it (runtime/program/IssueOrder.h, Buckets.h): from the last
// backward of the stage on, one stage after the other on each device; within
// that backward already where it sends nothing, but for the last bucket.
// Processors sum them afterwards, with the cores that compute.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Planner.h"
#include "compiler/schedule/Simulator.h"

namespace pipec::plan {

inline bool overlapsReduction(const Topology &topology) {
  return topology.device.kind != "cpu" && topology.cores == 0;
}

/// Bytes of another replica's gradients that one has at a time, or less
/// (runtime/program/Memory).
int64_t reducedAtOnce(const DeviceModel &device);

/// How long each device still sums after its last action of a step.
std::vector<double> exposedReduction(const schedule::Schedule &order,
                                     const schedule::Timeline &line,
                                     const std::vector<StagePlan> &stages);

} // namespace pipec::plan
