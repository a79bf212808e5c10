#include "compiler/plan/Collective.h"

#include <algorithm>
#include <limits>
#include <map>

namespace pipec::plan {

double transferSeconds(const Link &link, int64_t bytes) {
  if (bytes <= 0)
    return 0;
  return link.latency + static_cast<double>(bytes) / link.bandwidth;
}

namespace {

/// A ring of n over one kind of link: 2(n-1) hops of a share each.
void addRing(const Link &link, int n, double share, double &fixed,
             double &perByte) {
  if (n < 2)
    return;
  fixed += 2.0 * (n - 1) * link.latency;
  perByte += 2.0 * (n - 1) / n * share / link.bandwidth;
}

/// The first device of each server, where servers hold equally many of
/// `devices`; else nothing (no hierarchy then).
std::vector<int> leadersOf(const Topology &topology,
                           const std::vector<int> &devices) {
  const int server = topology.levels.back().count;
  std::map<int, std::pair<int, size_t>> held; // the first, and how many
  for (int d : devices)
    ++held.try_emplace(d / server, d, 0).first->second.second;
  std::vector<int> leaders;
  for (const auto &[id, its] : held) {
    if (its.second * held.size() != devices.size())
      return {};
    leaders.push_back(its.first);
  }
  return leaders;
}

} // namespace

AllReduceCost allReduceCost(const Topology &topology,
                            const std::vector<int> &devices) {
  AllReduceCost cost;
  int n = static_cast<int>(devices.size());
  if (n < 2)
    return cost;
  addRing(topology.ringLink(devices), n, 1, cost.ringFixed, cost.ringPerByte);
  const std::vector<int> leaders = leadersOf(topology, devices);
  const int servers = static_cast<int>(leaders.size());
  if (servers > 1 && servers < n) {
    const int inner = n / servers;
    const Level &near = topology.levels.back();
    Link nearLink{near.bandwidth, near.latency,
                  static_cast<int>(topology.levels.size()) - 1};
    addRing(nearLink, inner, 1, cost.treeFixed, cost.treePerByte);
    addRing(topology.ringLink(leaders), servers, 1.0 / inner, cost.treeFixed,
            cost.treePerByte);
  } else {
    cost.treeFixed = cost.ringFixed;
    cost.treePerByte = cost.ringPerByte;
  }
  return cost;
}

Link boundaryLink(const Topology &topology, const std::vector<int> &from,
                  const std::vector<int> &to) {
  Link worst{std::numeric_limits<double>::infinity(), 0,
             static_cast<int>(topology.levels.size())};
  auto consider = [&](int a, int b) {
    Link l = topology.link(a, b);
    if (l.level < worst.level)
      worst = l;
  };
  if (from.size() == to.size()) {
    for (size_t q = 0; q < from.size(); ++q)
      consider(from[q], to[q]);
    return worst;
  }
  // Neighbouring devices stage by stage: the extremes differ at the outermost
  // level at which any two do.
  for (int a : {from.front(), from.back()})
    for (int b : {to.front(), to.back()})
      consider(a, b);
  return worst;
}

} // namespace pipec::plan
