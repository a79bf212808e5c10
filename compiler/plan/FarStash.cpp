#include "compiler/plan/FarStash.h"

#include "compiler/plan/RankCores.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace pipec::plan {

namespace {

constexpr int kUsualSlots = 2; ///< of the times of a graph's nodes

/// Bytes that a device goes through from task to task, and how many of them it
/// would with the usual slots.
struct Touched {
  double all = 0, usual = 0;
};

int64_t slotBytes(const StagePlan &stage) {
  return stage.inFlight > 0 ? stage.memory.stash / stage.inFlight : 0;
}

std::map<int, Touched> touchedBy(const std::vector<StagePlan> &stages) {
  std::map<int, Touched> devices;
  for (const StagePlan &stage : stages) {
    const MemoryParts &memory = stage.memory;
    const auto all =
        static_cast<double>(memory.total() - memory.optimizer - memory.undo);
    const auto more = static_cast<double>(
        std::max(0, stage.inFlight - kUsualSlots) * slotBytes(stage));
    for (int device : stage.devices) {
      devices[device].all += all;
      devices[device].usual += all - more;
    }
  }
  return devices;
}

} // namespace

double passSeconds(const DeviceModel &device, double bytes) {
  const std::vector<CachePass> &passes = device.passes;
  if (passes.empty())
    return 0;
  const auto above =
      std::find_if(passes.begin(), passes.end(),
                   [&](const CachePass &pass) { return pass.bytes >= bytes; });
  if (above == passes.begin())
    return passes.front().secondsPerByte;
  if (above == passes.end())
    return passes.back().secondsPerByte;
  const CachePass &below = *(above - 1);
  const double way =
      std::log(bytes / below.bytes) / std::log(above->bytes / below.bytes);
  return std::lerp(below.secondsPerByte, above->secondsPerByte, way);
}

void addFarStash(const Topology &topology, std::vector<StagePlan> &stages) {
  const DeviceModel &device = topology.device;
  if (device.passes.empty())
    return;
  const double ranks = std::max(1.0, rankCores(topology, stages).ranksPerCore),
               share = ranks / device.threads; // of each core
  const std::map<int, Touched> touched = touchedBy(stages);
  for (StagePlan &stage : stages) {
    double more = 0; // s a byte
    for (int on : stage.devices) {
      const Touched &bytes = touched.at(on);
      const double usual =
          std::min(share * bytes.usual, kFarCaches * device.ownCacheBytes);
      more = std::max(more, passSeconds(device, share * bytes.all) -
                                passSeconds(device, usual));
    }
    stage.farStashSeconds =
        more * static_cast<double>(slotBytes(stage)) / device.threads;
    stage.forwardSeconds += stage.farStashSeconds;
    const double backward =
        stage.backwardInputSeconds + stage.backwardWeightSeconds;
    if (backward <= 0)
      continue;
    const double slower = 1 + stage.farStashSeconds / backward;
    stage.backwardInputSeconds *= slower;
    stage.backwardWeightSeconds *= slower;
  }
}

void takeOffFarStash(const std::vector<StagePlan> &stages, CostGraph &graph) {
  for (const StagePlan &stage : stages) {
    // They have it twice: it was measured, and added.
    const auto kept = [&](double seconds) {
      const double measured = seconds - stage.farStashSeconds;
      return measured > 0 ? std::max(0.5, 1 - stage.farStashSeconds / measured)
                          : 1;
    };
    const double forward = kept(stage.forwardSeconds),
                 backward = kept(stage.backwardInputSeconds +
                                 stage.backwardWeightSeconds);
    for (size_t i = stage.firstNode; i <= stage.lastNode; ++i) {
      graph.nodes[i].forwardSeconds *= forward;
      graph.nodes[i].backwardInputSeconds *= backward;
      graph.nodes[i].backwardWeightSeconds *= backward;
    }
  }
}

} // namespace pipec::plan
