//===- PlanDot.h - drawings of graphs cut into stages -----------*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

#include <string>
#include <utility>
#include <vector>

namespace pipec::plan {

struct DotNode {
  std::string id, label;
  int stage = -1; ///< -1: in none
};

/// Graphviz: one colour a stage, neighbouring stages unlike.
std::string
dotGraph(const std::vector<DotNode> &nodes,
         const std::vector<std::pair<std::string, std::string>> &edges);

/// The model's nodes, coloured by the plan's stages.
std::string planDot(const CostGraph &graph, const PlanResult &plan);

} // namespace pipec::plan
