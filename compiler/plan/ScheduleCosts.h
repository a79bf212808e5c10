//===- ScheduleCosts.h - what actions of a plan take ------------*- C++ -*-===//
//
// Stages, links and cores as the schedule library wants them: the seconds of
// every action and of the way between two stages.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Planner.h"
#include "compiler/schedule/Costs.h"

namespace pipec::plan {

/// Seconds between two tasks, and that stage `s` takes and copies what it gets
/// forward (or, `backward`, the gradient of what it sends) where receivers do
/// (DeviceModel::ringSeconds); a few bytes come with their announcement.
/// `sharers` are RankCores::ranksPerCore.
double receiveSeconds(const Topology &topology,
                      const std::vector<StagePlan> &stages, size_t s,
                      bool backward, double sharers);

/// What a boundary's message is under way before its receiver can take it:
/// where that copies the bytes itself, only until it has heard of them.
double hopSeconds(const Topology &topology,
                  const std::vector<StagePlan> &stages, size_t s,
                  const Link &link, int64_t bytes, double sharers);

/// All that a microbatch's message between stages `s` - 1 and `s` takes,
/// forward or `backward`: on its way, and until its receiver has it.
double messageSeconds(const Topology &topology,
                      const std::vector<StagePlan> &stages, size_t s,
                      bool backward, double sharers);

/// The schedule library's costs of the stages, memory left out; with `slices`
/// its actions are so many pieces of a microbatch. `sharers` as above.
schedule::Costs scheduleCosts(const Topology &topology,
                              const std::vector<StagePlan> &stages, int slices,
                              double sharers);
/// The same of whole microbatches, on the cores that the stages have.
schedule::Costs scheduleCosts(const Topology &topology,
                              const std::vector<StagePlan> &stages);

} // namespace pipec::plan
