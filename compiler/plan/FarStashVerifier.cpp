#include "compiler/plan/FarStashVerifier.h"

#include "compiler/plan/Expect.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace pipec::plan {

namespace {

double costOf(const std::vector<CachePass> &passes, double bytes) {
  bytes = std::clamp(bytes, passes.front().bytes, passes.back().bytes);
  size_t next = 1;
  while (next + 1 < passes.size() && passes[next].bytes < bytes)
    ++next;
  if (next >= passes.size())
    return passes.back().secondsPerByte;
  const CachePass &low = passes[next - 1], &high = passes[next];
  const double share =
      std::log2(bytes / low.bytes) / std::log2(high.bytes / low.bytes);
  return low.secondsPerByte +
         share * (high.secondsPerByte - low.secondsPerByte);
}

/// Ranks that a core of the fullest server has.
double ranksOnACore(const Topology &topology, const PlanResult &result) {
  std::map<int, std::set<int>> onServer;
  size_t most = 0;
  for (const StagePlan &stage : result.stages)
    for (const int device : stage.devices) {
      auto &there = onServer[topology.server(device)];
      there.insert(device);
      most = std::max(most, there.size());
    }
  return topology.cores > 0
             ? std::max(1.0, static_cast<double>(most) / topology.cores)
             : 1;
}

} // namespace

void verifyFarStash(const PlanRequest &request, const PlanResult &result,
                    const std::vector<FoundBytes> &found) {
  const DeviceModel &device = request.topology.device;
  const double ranks =
      device.passes.empty() ? 0 : ranksOnACore(request.topology, result);
  for (size_t s = 0; s < found.size(); ++s) {
    const StagePlan &stage = result.stages[s];
    double dearest = 0;
    for (const int on : stage.devices) {
      if (device.passes.empty())
        break;
      int64_t all = 0, more = 0;
      for (size_t t = 0; t < found.size(); ++t) {
        const StagePlan &other = result.stages[t];
        if (std::count(other.devices.begin(), other.devices.end(), on) == 0)
          continue;
        all += found[t].touched;
        if (!other.recompute && other.inFlight > 2)
          more += (other.inFlight - 2) * found[t].slot;
      }
      const auto ofCore = [&](int64_t bytes) {
        return ranks * static_cast<double>(bytes) / device.threads;
      };
      const double usual =
          std::min(ofCore(all - more), kFarCaches * device.ownCacheBytes);
      dearest = std::max(dearest, costOf(device.passes, ofCore(all)) -
                                      costOf(device.passes, usual));
    }
    const double slot = stage.recompute ? 0 : found[s].slot,
                 took = dearest * slot / device.threads,
                 all = device.passes.empty()
                           ? 0
                           : device.passes.back().secondsPerByte * slot;
    // A difference of costs that may be nearly the same.
    expect(std::abs(stage.farStashSeconds - took) <= 1e-9 * all,
           "stage " + std::to_string(s) + "'s time of its stash is " +
               std::to_string(stage.farStashSeconds) + " s in the plan and " +
               std::to_string(took) + " s when recomputed");
  }
}

} // namespace pipec::plan
