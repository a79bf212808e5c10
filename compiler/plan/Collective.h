//===- Collective.h - time on links -----------------------------*- C++ -*-===//
#pragma once

#include "compiler/plan/Topology.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pipec::plan {

/// Seconds to move `bytes` over `link`.
double transferSeconds(const Link &link, int64_t bytes);

/// What an all-reduce among a set of devices costs for any number of bytes: the
/// better of one ring over all of them, 2(n-1)/n of the bytes over the slowest
/// link, and a hierarchy that reduce-scatters inside each server, all-reduces
/// the shares between servers and gathers again.
struct AllReduceCost {
  double ringFixed = 0, ringPerByte = 0;
  double treeFixed = 0,
         treePerByte = 0; ///< equal to the ring where there is none
  double seconds(int64_t bytes) const {
    if (bytes <= 0)
      return 0;
    double b = static_cast<double>(bytes);
    return std::min(ringFixed + ringPerByte * b, treeFixed + treePerByte * b);
  }
};
AllReduceCost allReduceCost(const Topology &topology,
                            const std::vector<int> &devices);

inline double allReduceSeconds(const Topology &topology,
                               const std::vector<int> &devices, int64_t bytes) {
  return allReduceCost(topology, devices).seconds(bytes);
}

/// The slowest link a microbatch can take from a replica in `from` to one in
/// `to`: with equally many replicas the q-th of one always meets the q-th of
/// the other.
Link boundaryLink(const Topology &topology, const std::vector<int> &from,
                  const std::vector<int> &to);

} // namespace pipec::plan
