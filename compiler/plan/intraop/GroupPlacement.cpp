#include "compiler/plan/intraop/GroupPlacement.h"

#include "compiler/plan/StableOrder.h"

#include <algorithm>
#include <numeric>

namespace pipec::plan {

namespace {

using Leaders = std::vector<std::vector<int>>;

double slowestOf(const Topology &topology, int leader, int degree) {
  std::vector<int> devices(static_cast<size_t>(degree));
  std::iota(devices.begin(), devices.end(), leader);
  return topology.slowestLink(devices).bandwidth;
}

/// Empty where a group straddles what one at the beginning does not.
Leaders inOrder(const Topology &topology, const std::vector<StageGroups> &all) {
  Leaders leaders;
  int next = 0;
  for (const StageGroups &stage : all) {
    leaders.emplace_back();
    const double priced = slowestOf(topology, 0, stage.degree);
    for (int q = 0; q < stage.replicas; ++q, next += stage.degree) {
      if (next + stage.degree > topology.devices() ||
          slowestOf(topology, next, stage.degree) < priced)
        return {};
      leaders.back().push_back(next);
    }
  }
  return leaders;
}

/// A component of the innermost level, all of whose devices are equally near.
struct Server {
  int room = 0;
  std::vector<size_t> stages; ///< one entry a group
};

/// How far the pipeline's neighbours are that a server has; of an empty one as
/// many stages as a server would have had in order.
size_t distance(const Server &server, size_t stage, size_t whenEmpty) {
  size_t least = whenEmpty;
  for (size_t other : server.stages)
    least = std::min(least, other < stage ? stage - other : other - stage);
  return least;
}

/// Of descending sizes that divide each other every server's room is a multiple
/// of the next one: whichever is taken, all find a place.
Leaders largestFirst(const Topology &topology,
                     const std::vector<StageGroups> &all) {
  const int size = topology.levels.back().count;
  std::vector<Server> servers(static_cast<size_t>(topology.devices() / size),
                              {size, {}});
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t(0));
  sortBy(order, [&](size_t stage) { return -all[stage].degree; });
  const size_t whenEmpty = all.size() / servers.size() + 1;
  for (size_t stage : order)
    for (int q = 0; q < all[stage].replicas; ++q) {
      Server *best = nullptr;
      for (Server &server : servers)
        if (server.room >= all[stage].degree &&
            (!best || distance(server, stage, whenEmpty) <
                          distance(*best, stage, whenEmpty)))
          best = &server;
      if (!best)
        return {};
      best->room -= all[stage].degree;
      best->stages.push_back(stage);
    }
  // Servers in the order of the pipeline, and in each its stages.
  for (Server &server : servers)
    std::sort(server.stages.begin(), server.stages.end());
  sortBy(servers, [&](const Server &server) {
    return server.stages.empty() ? all.size() : server.stages.front();
  });
  Leaders leaders(all.size());
  for (size_t s = 0; s < servers.size(); ++s) {
    int next = static_cast<int>(s) * size;
    for (size_t stage : servers[s].stages) {
      leaders[stage].push_back(next);
      next += all[stage].degree;
    }
  }
  return leaders;
}

} // namespace

std::vector<std::vector<int>> placeGroups(const Topology &topology,
                                          const std::vector<StageGroups> &all) {
  Leaders leaders = inOrder(topology, all);
  return leaders.empty() ? largestFirst(topology, all) : leaders;
}

} // namespace pipec::plan
