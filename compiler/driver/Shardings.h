//===- Shardings.h - how a model's operators may be sharded -----*- C++ -*-===//
#pragma once

#include "compiler/plan/CostGraph.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec {

/// The factors of the nodes of `main`, in the terms of the graph that was made
/// of them: node i is modelNodes(main)[i]. Where a node reads a weight through
/// views, its dimensions are the weight's.
plan::ShardingGraph shardingGraph(mlir::func::FuncOp main,
                                  const plan::CostGraph &graph, bool trains);

} // namespace pipec
