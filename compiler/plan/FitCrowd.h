//===- FitCrowd.h - ranks that outnumber the cores --------------*- C++ -*-===//
//
// Ranks that take turns on a core are changed for each other between tasks, and
// those that wait look for their messages between the tasks of others. How much
// that is, pipelines of that many ranks tell.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/Planner.h"

#include <vector>

namespace pipec::plan {

/// A 1F1B pipeline that was run: its stages as they were measured, a rank each,
/// and seconds of their updates and of a step.
struct CrowdSample {
  std::vector<StagePlan> stages;
  std::vector<double> updates;
  int microbatches = 0;
  double step = 0;
};

struct Crowd {
  double turnSeconds = 0; ///< DeviceModel::crowdTurnSeconds
  double seenSeconds = 0; ///< DeviceModel::crowdSeenSeconds
};

/// What explains the samples' steps best on `topology`, a server whose ranks
/// outnumber its cores, with what it says of messages and turns besides: the
/// least relative errors. Deterministic. Throws Failure(Exit::BadModel) for a
/// time that is not above 0.
Crowd fitCrowd(const std::vector<CrowdSample> &samples,
               const Topology &topology);

/// The sample's step, s, by the simulator.
double crowdStep(const CrowdSample &sample, Topology topology,
                 const Crowd &crowd);

} // namespace pipec::plan
