//===- CostModel.h - a model's costs for the planner -------------*- C++
//-*-===//
#pragma once

#include "compiler/plan/CostGraph.h"
#include "compiler/plan/DeviceModel.h"
#include "mlir/IR/BuiltinOps.h"

namespace pipec {

/// Costs of `module` (attached, one nn.weight a use, no stages yet) on
/// `device`: node i is modelNodes(main)[i]. With `trains` the backward pass is
/// priced from the gradient graph itself, made on a copy. Fails after a
/// diagnostic when the model has no gradient.
mlir::LogicalResult costGraph(mlir::ModuleOp module, bool trains,
                              const plan::DeviceModel &device,
                              plan::CostGraph &graph);

} // namespace pipec
