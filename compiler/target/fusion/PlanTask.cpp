//===- PlanTask.cpp - from a task's ops to units in order -----------------===//
#include "compiler/target/fusion/Expand.h"
#include "compiler/target/fusion/Plan.h"

using namespace mlir;
using namespace pipec;

LogicalResult fusion::planTask(func::FuncOp func, StringRef name,
                               const PlanOptions &options, TaskPlan &plan) {
  if (func.getNumArguments() || func.getNumResults() ||
      !llvm::hasSingleElement(func.getBody()))
    return func.emitError("a task has one block, no arguments and no results");
  plan.func = func;
  plan.name = name.str();
  expandComposedOps(func);
  plan.groups = formGroups(func, options);
  if (failed(placeTask(plan, options)))
    return failure();
  if (options.epilogues) {
    chooseEpilogues(plan);
    pairAttentionGradients(plan);
  }
  if (failed(orderUnits(plan)))
    return failure();
  layoutArena(plan);
  return success();
}
