//===- FitCrowd.h - ranks that outnumber the cores --------------*- C++ -*-===//
//
// Ranks that take turns on a core are changed for each other, and who sleeps is
// woken when its core is free and the system has seen to it. How much that is,
// pipelines of that many ranks tell.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <vector>

namespace pipec::plan {

/// A 1F1B pipeline of equal stages: seconds of its tasks, one after the other in
/// one thread for all ranks of a core, and of a step of all ranks.
struct CrowdSample {
  double forward = 0, backward = 0, update = 0, step = 0;
  double slower = 1; ///< how much longer the core had them in the pipeline
};

struct Crowd {
  double factor = 1;      ///< DeviceModel::crowdFactor
  double ringSeconds = 0; ///< DeviceModel::ringSeconds
  double seenSeconds = 0; ///< DeviceModel::crowdSeenSeconds
};

/// From a message until its receiver computes, s: who waits looks again
/// whenever the others of its core let it, which takes `seenSeconds` besides,
/// and sleeps, to be woken within `ringSeconds`, only where their tasks are
/// longer than such a turn.
double crowdedHop(double ringSeconds, double seenSeconds, double longestTask,
                  double ranksPerCore);

/// What explains the samples best beside the slowness of their tasks, of `ranks` on `cores` with so many
/// microbatches and seconds between tasks. Deterministic. Throws
/// Failure(Exit::BadModel) for a time that is not above 0.
Crowd fitCrowd(const std::vector<CrowdSample> &samples, int ranks, int cores,
               int microbatches, double turnSeconds);

/// The sample's step, s, by the simulator.
double crowdStep(const CrowdSample &sample, const Crowd &crowd, int ranks,
                 int cores, int microbatches, double turnSeconds);

} // namespace pipec::plan
