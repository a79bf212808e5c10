//===- StepObjective.h - published graphs under our own objective -*- C++ -*-=//
#pragma once

#include "compiler/plan/CostGraph.h"
#include "compiler/plan/published/Partition.h"

namespace pipec::published {

/// A published graph as a cost graph: nodes in topological order, a forward and
/// a backward time each, its output as the value it sends and keeps. `ids[i]`
/// names the graph's nodes that node i stands for.
struct ConvertedGraph {
  plan::CostGraph graph;
  std::vector<std::vector<std::string>> ids;
  int devices = 0, microbatches = 0; ///< what the file says, 0 if nothing
  double memory = 0, bandwidth = 0;
  std::vector<std::pair<std::string, std::string>> nodes, edges;
};
ConvertedGraph convertGraph(const PartitionOptions &options,
                            GraphFormat format);

/// Predicted step time of options.strategy on the cluster, in ms.
Partition partitionByStep(const PartitionOptions &options, GraphFormat format);

} // namespace pipec::published
