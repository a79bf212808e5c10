//===- Collective.h - time on links -----------------------------*- C++ -*-===//
#pragma once

#include "compiler/plan/Topology.h"

#include <cstdint>
#include <vector>

namespace pipec::plan {

/// Seconds to move `bytes` over `link`.
double transferSeconds(const Link &link, int64_t bytes);

/// Seconds of an all-reduce of `bytes` among `devices`: the better of one ring
/// over all of them, 2(n-1)/n of the bytes over the slowest link, and a
/// hierarchy that reduce-scatters inside each server, all-reduces the shares
/// between servers and gathers again.
double allReduceSeconds(const Topology &topology,
                        const std::vector<int> &devices, int64_t bytes);

/// The slowest link a microbatch can take from a replica in `from` to one in
/// `to`: with equally many replicas the q-th of one always meets the q-th of
/// the other.
Link boundaryLink(const Topology &topology, const std::vector<int> &from,
                  const std::vector<int> &to);

} // namespace pipec::plan
