#include "compiler/plan/RankCores.h"

#include <algorithm>
#include <set>

namespace pipec::plan {

RankCores rankCores(const Topology &topology,
                    const std::vector<StagePlan> &stages) {
  RankCores result;
  if (topology.cores == 0)
    return result;
  std::map<int, std::set<int>> onServer;
  for (const StagePlan &stage : stages)
    for (int device : stage.devices)
      onServer[topology.server(device)].insert(device);
  size_t most = 0;
  for (const auto &[server, devices] : onServer)
    most = std::max(most, devices.size());
  if (static_cast<int>(most) <= topology.cores)
    return result;
  result.ranksPerCore = static_cast<double>(most) / topology.cores;
  // Ranks of a server with cores enough have one each.
  for (const auto &[server, devices] : onServer)
    for (int device : devices) {
      const int first = server * topology.serverSize();
      const bool shares = static_cast<int>(devices.size()) > topology.cores;
      result.core[device] =
          shares ? first + (device - first) % topology.cores : device;
    }
  return result;
}

} // namespace pipec::plan
