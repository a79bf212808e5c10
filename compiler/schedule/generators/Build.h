//===- Build.h - what generators share --------------------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/Generator.h"

namespace pipec::schedule {

/// An empty schedule with that placement.
Schedule begin(const ScheduleRequest &request,
               std::vector<std::vector<int>> placement);

/// Throws Failure(Usage) "NAME: WHAT must be …" unless `holds`.
void require(bool holds, const std::string &what);

/// For schedules that send microbatches from both ends. Throws Failure(Usage).
void requirePairsOfDevices(const std::string &name, int devices);

/// Copies of each stage: request.replicas, or one each.
std::vector<int> replicasOf(const ScheduleRequest &request);

/// The microbatches that copy `copy` of a stage with `copies` copies handles.
std::vector<int> localMicrobatches(const ScheduleRequest &request, int copy,
                                   int copies);

/// `warmup` forwards, then one backward and one forward in turn while there
/// are forwards, then the rest of the backwards.
std::vector<Action> oneForwardOneBackward(int stage,
                                          const std::vector<int> &microbatches,
                                          int warmup);

/// PipeDream's forwards before the first backward at each stage:
/// floor((sum of copies from here on - 1) / copies) + 1.
std::vector<int> pipelineDepths(const std::vector<int> &replicas);

/// One function per row of Schedules.def.
#define PIPEC_SCHEDULE(function, ...)                                          \
  Schedule function(const ScheduleRequest &request);
#include "compiler/schedule/Schedules.def"

/// Not a row: the search over all placements.
Schedule makeAuto(const ScheduleRequest &request);

} // namespace pipec::schedule
