#include "compiler/plan/FitCrowd.h"

#include "compiler/plan/RankCores.h"
#include "compiler/plan/ScheduleCosts.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/SharedCores.h"
#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::plan {

double crowdStep(const CrowdSample &sample, Topology topology,
                 const Crowd &crowd) {
  topology.device.crowdTurnSeconds = crowd.turnSeconds;
  topology.device.crowdSeenSeconds = crowd.seenSeconds;
  schedule::ScheduleRequest request;
  request.devices = static_cast<int>(sample.stages.size());
  request.microbatches = sample.microbatches;
  const RankCores cores = rankCores(topology, sample.stages);
  schedule::CoreSharing sharing;
  sharing.cores = cores.cores;
  for (const StagePlan &stage : sample.stages)
    sharing.shares.push_back({{cores.group.at(stage.devices.front()), 1}});
  return schedule::simulateShared(
             schedule::generate("1f1b", request),
             scheduleCosts(topology, sample.stages, 1, cores.ranksPerCore),
             sharing, sample.updates)
             .finish.front() +
         topology.device.stepSeconds;
}

Crowd fitCrowd(const std::vector<CrowdSample> &samples,
               const Topology &topology) {
  for (const CrowdSample &sample : samples)
    if (!(sample.step > 0))
      throw Failure(Exit::BadModel, "a calibration time is not above 0");
  Crowd best;
  double least = std::numeric_limits<double>::infinity();
  // Relative errors, not squared: a step that was disturbed says little.
  auto attempt = [&](const Crowd &crowd) {
    double error = 0;
    for (const CrowdSample &sample : samples)
      error +=
          std::abs(std::log(crowdStep(sample, topology, crowd) / sample.step));
    if (error < least)
      least = error, best = crowd;
  };
  // A coarse grid, of twice the size while its end is the best; then a fine
  // one.
  constexpr int kSteps = 15;
  constexpr double kTurn = 1e-6, kSeen = 2e-6, kWidest = 64;
  double width = 1;
  for (;; width *= 2) {
    for (int turn = 0; turn <= kSteps; ++turn)
      for (int seen = 0; seen <= kSteps; ++seen)
        attempt({kTurn * width * turn, kSeen * width * seen});
    if (width >= kWidest ||
        (best.turnSeconds < kTurn * width * (kSteps - 0.5) &&
         best.seenSeconds < kSeen * width * (kSteps - 0.5)))
      break;
  }
  const Crowd near = best;
  for (int turn = -5; turn <= 5; ++turn)
    for (int seen = -4; seen <= 4; ++seen)
      attempt({std::max(0.0, near.turnSeconds + kTurn / 5 * width * turn),
               std::max(0.0, near.seenSeconds + kSeen / 4 * width * seen)});
  return best;
}

} // namespace pipec::plan
