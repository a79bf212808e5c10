//===- PlacementGraph.h - dnn-partitioning's placement inputs ---*- C++ -*-===//
//
// JSON of Tarnawski et al., NeurIPS 2020: nodes with latencies on an
// accelerator and on a CPU, memory, colocation classes; edges with the time to
// move the source's output off or onto an accelerator. Backward nodes live with
// their forward nodes, so a contiguous placement orders the forward part only:
// devices follow forward edges. A class of backward nodes alone stands in the
// order where its mirror image would: against its backward edges.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/Dag.h"

#include <optional>
#include <string>
#include <vector>

namespace pipec::published {

struct PlacementNode {
  std::string id, name;
  bool onAccelerator = true; ///< supported there
  bool backward = false;
  double cpuLatency = 0, latency = 0;
  double bytes = 0;
  std::optional<long long> colorClass;
};

struct PlacementGraph {
  struct Edge {
    int from, to;
    double cost;
  };
  std::vector<PlacementNode> nodes;
  std::vector<Edge> edges;
  double deviceBytes = 0; ///< of an accelerator
  int accelerators = 1, cpus = 0;
};

/// Throws Failure(Exit::BadModel) with `origin` and the reason.
PlacementGraph parsePlacementGraph(const std::string &json,
                                   const std::string &origin);

/// A producer's output and the units that use it; the producer's own unit is
/// among `members` and at `producer`.
struct Transfer {
  int producer;
  std::vector<int> consumers; ///< other units, ascending
  double cost;
};

/// The graph with everything contracted that must or may as well share a
/// device: colour classes, cycles among them, and free units that no optimum
/// separates from a neighbour. Units are numbered topologically.
struct PlacementUnits {
  std::vector<std::vector<int>> members; ///< nodes
  std::vector<double> latency, cpuLatency, bytes;
  std::vector<char> onAccelerator;
  Dag order; ///< u before v: v is never on an earlier device; without edges
             ///< for placements of any shape
  std::vector<Transfer> transfers; ///< those with a consumer in another unit
  std::vector<std::vector<int>> touching; ///< transfers of each unit
  int size() const { return static_cast<int>(members.size()); }
};

/// Free units are merged where that is exact: when memory may bind, those
/// without bytes only. `contiguous` = false is for placements of any shape:
/// cycles among classes stay apart, and there is no order.
PlacementUnits placementUnits(const PlacementGraph &graph,
                              bool contiguous = true);

} // namespace pipec::published
