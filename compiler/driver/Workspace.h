//===- Workspace.h - what generated code works in ---------------*- C++ -*-===//
//
// The code generator decides what lives in registers, in slots and in the
// workspace, so that no sum over operators says how much that is. Here the
// model is planned as one stage, without making code, and what is in use at a
// time goes to the nodes that run and have made it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/CostGraph.h"
#include "compiler/target/fusion/Plan.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "passes/Pipelines.h"

#include <functional>
#include <vector>

namespace pipec {

/// Plans the tasks of all of `module` as one stage. `module` is consumed:
/// differentiated where it trains, what is kept chosen, its ops carry their
/// node. Fails after a diagnostic.
mlir::LogicalResult
planAsOne(mlir::ModuleOp module, const char *target, const MemoryChoice &memory,
          llvm::function_ref<mlir::LogicalResult(fusion::TaskPlan &)> use);

/// Adds to `graph` what the code of each of the task's nodes works in
/// (CostGraph::scratch).
void addScratch(const fusion::TaskPlan &task, plan::CostGraph &graph);

/// What is in use when all activations have been computed again
/// (CostGraph::repeats), found when it is first asked for: planning that code
/// takes as long as all other costs, and most plans keep their activations. Any
/// thread may ask. Of `module` nothing has been chosen to be kept yet.
std::function<std::vector<plan::CostStash>()>
repeatsOf(mlir::OwningOpRef<mlir::ModuleOp> module, const char *target,
          const MemoryChoice &memory);

} // namespace pipec
