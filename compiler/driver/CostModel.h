//===- CostModel.h - a model's costs for the planner ------------*- C++ -*-===//

#pragma once

#include "compiler/driver/TaskCosts.h"
#include "compiler/plan/CostGraph.h"
#include "compiler/plan/DeviceModel.h"
#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <vector>

namespace pipec {

/// Models of more nodes are priced by their operators alone, and their code is
/// not planned ahead of being made: both take time that grows with the model
/// for every plan that is tried.
inline constexpr size_t kMostPlanned = 6000;

/// What is priced beside the model itself.
struct CostRequest {
  bool trains = false;
  int microbatches = 1; ///< of a step, which running statistics follow
  OptimizerChoice optimizer{};
  bool keepsAll = false;  ///< what could be computed again cheaply is kept, too
  bool recomputes = true; ///< stages may compute their activations again
  bool workspace = true;  ///< what code works in is found, too
  bool shards = false;    ///< how operators may be sharded is found, too
  MemoryChoice memory{};  ///< how the plan's memory will be laid out
  int caches = 1;         ///< of cores, among which the model is divided
};

/// CostGraph::repeats, found when it is asked for (Workspace.h); may be empty.
using Repeats = std::function<std::vector<plan::CostStash>()>;

/// Costs of `module` (attached, one nn.weight a use, no stages yet) on
/// `device`: node i is modelNodes(main)[i]. What trains is priced from the
/// gradient graph itself, made on a copy; for GPUs, and where a calibration
/// knows what calls cost, from the code that would be generated (TaskCosts.h).
/// `repeats` gives what stages need that compute their activations again. Fails
/// after a diagnostic when the model has no gradient.
mlir::LogicalResult costGraph(mlir::ModuleOp module, const CostRequest &request,
                              const plan::DeviceModel &device,
                              plan::CostGraph &graph, Repeats &repeats);

} // namespace pipec
