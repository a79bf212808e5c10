#include "compiler/plan/ScheduleCosts.h"

#include "compiler/plan/Collective.h"
#include "compiler/plan/RankCores.h"
#include "support/Backoff.h"

#include <algorithm>
#include <span>

namespace pipec::plan {

/// The longest of a rank's waits for one task of these stages.
static double longestTask(std::span<const StagePlan> stages) {
  double longest = 0;
  for (const StagePlan &stage : stages)
    longest =
        std::max({longest, stage.forwardSeconds,
                  stage.backwardInputSeconds + stage.backwardWeightSeconds});
  return longest;
}

/// What lies between two tasks.
static double turnSeconds(const Topology &topology, double sharers) {
  return topology.device.turnSeconds +
         (sharers > 0 ? topology.device.crowdTurnSeconds : 0);
}

double receiveSeconds(const Topology &topology,
                      const std::vector<StagePlan> &stages, size_t s,
                      bool backward, double sharers) {
  constexpr int64_t kAtOnce = 4096; // bytes that come with their announcement
  const double turn = turnSeconds(topology, sharers);
  if (backward ? s + 1 == stages.size() : s == 0)
    return turn;
  const size_t from = backward ? s + 1 : s - 1;
  const int64_t bytes =
      backward ? stages[s + 1].receiveGradientBytes : stages[s].receiveBytes;
  if (bytes == 0 || stages[from].devices == stages[s].devices ||
      topology.device.ringSeconds <= 0)
    return turn;
  if (bytes <= kAtOnce)
    return turn + topology.device.noteSeconds;
  const Link link = boundaryLink(topology, stages[std::min(from, s)].devices,
                                 stages[std::max(from, s)].devices);
  return turn + topology.device.takeSeconds +
         static_cast<double>(bytes) / link.bandwidth;
}

/// How long a few bytes take to the next stage. A rank first looks for messages
/// without a sleep, as its core's others let it: what comes soon, as between
/// stages of small tasks, is seen at once. Who waits longer is woken.
static double latencyBefore(const Topology &topology,
                            const std::vector<StagePlan> &stages, size_t s,
                            const Link &link, double sharers) {
  const bool between =
      link.level + 1 < static_cast<int>(topology.levels.size());
  const DeviceModel &device = topology.device;
  const double wait =
      sharers > 0 ? sharers * longestTask(stages)
                  : longestTask({&stages[s - 1], 2}); // neighbours alone
  const double asleep = std::max(0.0, wait - kEagerSeconds);
  if (between) // servers
    return link.latency +
           (sharers > 0
                ? std::min(device.ringSeconds, device.crowdSeenSeconds + asleep)
                : 0);
  if (sharers > 0)
    return std::min(device.ringSeconds, device.crowdSeenSeconds + asleep);
  return std::min(link.latency, device.seenSeconds + asleep);
}

double hopSeconds(const Topology &topology,
                  const std::vector<StagePlan> &stages, size_t s,
                  const Link &link, int64_t bytes, double sharers) {
  return topology.device.ringSeconds > 0 && bytes > 0
             ? latencyBefore(topology, stages, s, link, sharers)
             : transferSeconds(link, bytes);
}

double messageSeconds(const Topology &topology,
                      const std::vector<StagePlan> &stages, size_t s,
                      bool backward, double sharers) {
  const Link link =
      boundaryLink(topology, stages[s - 1].devices, stages[s].devices);
  const int64_t bytes =
      backward ? stages[s].receiveGradientBytes : stages[s].receiveBytes;
  return hopSeconds(topology, stages, s, link, bytes, sharers) +
         receiveSeconds(topology, stages, backward ? s - 1 : s, backward,
                        sharers) -
         turnSeconds(topology, sharers);
}

schedule::Costs scheduleCosts(const Topology &topology,
                              const std::vector<StagePlan> &stages) {
  return scheduleCosts(topology, stages, 1,
                       rankCores(topology, stages).ranksPerCore);
}

schedule::Costs scheduleCosts(const Topology &topology,
                              const std::vector<StagePlan> &stages, int slices,
                              double sharers) {
  schedule::Costs costs;
  const double piece = topology.device.stretchFactor / slices;
  for (size_t s = 0; s < stages.size(); ++s) {
    costs.forward.push_back(
        piece * stages[s].forwardSeconds +
        receiveSeconds(topology, stages, s, false, sharers));
    costs.backwardInput.push_back(
        piece * stages[s].backwardInputSeconds +
        receiveSeconds(topology, stages, s, true, sharers));
    costs.backwardWeight.push_back(piece * stages[s].backwardWeightSeconds);
    if (s > 0) {
      Link link =
          boundaryLink(topology, stages[s - 1].devices, stages[s].devices);
      int64_t bytes =
          std::max(stages[s].receiveBytes, stages[s].receiveGradientBytes);
      costs.comm.push_back(
          hopSeconds(topology, stages, s, link, bytes / slices, sharers));
    }
  }
  costs.memoryForward.assign(stages.size(), 0);
  costs.memoryInput.assign(stages.size(), 0);
  costs.memoryWeight.assign(stages.size(), 0);
  return costs;
}

} // namespace pipec::plan
