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
  for (const auto &[server, devices] : onServer) {
    const auto ranks = static_cast<int>(devices.size());
    const int first = server * topology.serverSize();
    for (int device : devices) {
      int &group = result.group[device];
      if (ranks <= topology.cores)
        group = device;
      else if (ranks % topology.cores == 0)
        group = first + (device - first) % topology.cores;
      else
        group = first;
      result.cores[group] =
          ranks > topology.cores && ranks % topology.cores != 0 ? topology.cores
                                                                : 1;
    }
  }
  return result;
}

} // namespace pipec::plan
