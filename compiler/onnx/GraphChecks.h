//===- GraphChecks.h - is the graph a graph ---------------------*- C++ -*-===//

#pragma once

#include "compiler/onnx/Model.h"
#include "support/Diagnostics.h"

#include <set>

namespace pipec::onnx {

/// Names that the nodes of a graph read from outside of it, sorted.
std::set<std::string> freeNames(const Graph &graph);

/// Checks the main graph and its subgraphs: names defined once, every input
/// defined, every output made, no cycle.
bool checkGraph(const Model &model, Diagnostics &diagnostics);

/// The order in which nodes can be imported: that of the file wherever it is
/// topological. The nodes must be free of cycles.
std::vector<size_t> topologicalOrder(const std::vector<Node> &nodes);

} // namespace pipec::onnx
