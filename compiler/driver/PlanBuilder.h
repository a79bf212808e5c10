//===- PlanBuilder.h - the plan of a compiled module ------------*- C++ -*-===//

#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/plan/Planner.h"
#include "compiler/schedule/Schedule.h"
#include "compiler/strategy/Strategy.h"
#include "passes/Pipelines.h"
#include "runtime/program/Plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace pipec {

/// Everything that is known when the code of all stages exists.
struct PlanInputs {
  mlir::ModuleOp original; ///< with @main: inputs and outputs of the model
  mlir::ModuleOp staged;   ///< after pipe-attach-optimizer
  const CompileOptions &options;
  const strategy::StrategyRow &strategy;
  const schedule::Schedule &schedule;
  const plan::PlanRequest &request;
  const plan::PlanResult &result;
  std::vector<int64_t> workspaceBytes =
      {}; ///< per stage, the largest of its tasks
  /// Slots for messages that come before their turn, beyond those that every
  /// order needs.
  int spareSlots = 0;
  Purpose purpose = Purpose::Train;
  /// Pieces of a sequence: stage j * result.stages.size() + s of `staged` and
  /// `schedule` is piece j of stage s.
  int slices = 1;
  int64_t opset = 0;
  std::vector<std::string> modelInputs = {}, modelOutputs = {};
  std::string optimizer = {};
  std::map<std::string, double> optimizerSettings = {};
};

/// What of the plan is known before stages exist: inputs of @main with their
/// value ranges.
std::vector<plan::Input> planInputs(mlir::ModuleOp module);

/// Fills the plan except for `files` digests and the bytes of folded tensors
/// (PlanFolder.h).
plan::Plan buildPlan(const PlanInputs &inputs);

/// numpy's name of an element type.
std::string typeName(mlir::Type element);

} // namespace pipec
