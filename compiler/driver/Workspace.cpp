//===- Workspace.cpp - what generated code works in -----------------------===//
#include "compiler/driver/Workspace.h"

#include "compiler/driver/Repetitions.h"
#include "compiler/target/Target.h"
#include "compiler/target/fusion/Held.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"
#include "passes/Pipelines.h"
#include "support/Failure.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <mutex>

using namespace mlir;
using namespace pipec;

LogicalResult
pipec::planAsOne(ModuleOp module, const char *target,
                 const MemoryChoice &memory,
                 llvm::function_ref<LogicalResult(fusion::TaskPlan &)> use) {
  Builder b(module.getContext());
  if (func::FuncOp main = mainFunction(module))
    for (Operation &op : main.front().without_terminator())
      op.setAttr(kOpStage, b.getI64IntegerAttr(0));
  PassManager passes(module.getContext());
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
  addSplitPhase(passes, false);
  addMemoryPhase(passes, memory);
  if (failed(passes.run(module)))
    return failure();
  const std::unique_ptr<target::Target> made = target::createTarget(target);
  for (auto stage : module.getOps<ModuleOp>())
    if (stage->hasAttr(pipe::kStageAttr) &&
        failed(made->planTasks(stage, true, use)))
      return failure();
  return success();
}

/// Computes all activations again.
static LogicalResult repeatAll(ModuleOp module) {
  func::FuncOp main = mainFunction(module);
  if (!main)
    return failure();
  Builder b(module.getContext());
  for (Operation &op : main.front().without_terminator())
    op.setAttr(kOpStage, b.getI64IntegerAttr(0));
  markForward(main);
  PassManager passes(module.getContext());
  ChooseStashOptions stash;
  stash.mode = "full";
  passes.addPass(createChooseStash(stash));
  if (failed(passes.run(module)))
    return failure();
  markReaders(main);
  return success();
}

void pipec::addScratch(const fusion::TaskPlan &task, plan::CostGraph &graph) {
  for (const fusion::Held &held : fusion::heldBy(task, {kNode, kReader}))
    graph.scratch.push_back({static_cast<size_t>(held.first),
                             static_cast<size_t>(held.last), held.bytes});
}

static std::vector<plan::CostStash>
findRepeats(ModuleOp module, const char *target, const MemoryChoice &memory) {
  std::vector<plan::CostStash> repeats;
  const auto take = [&](fusion::TaskPlan &task) {
    if (task.name != "backward")
      return success();
    for (const fusion::Carried &value :
         fusion::carriedBy(task, {kNode, kReader}, kForwardMark))
      repeats.push_back({value.bytes,
                         {value.readers.begin(), value.readers.end()},
                         static_cast<size_t>(value.maker)});
    return success();
  };
  if (failed(repeatAll(module)) ||
      failed(planAsOne(module, target, memory, take)))
    throw Failure(Exit::Internal,
                  "what stages work in that compute their activations again "
                  "was not found; run again with --recompute selective and "
                  "report it");
  return repeats;
}

std::function<std::vector<plan::CostStash>()>
pipec::repeatsOf(OwningOpRef<ModuleOp> module, const char *target,
                 const MemoryChoice &memory) {
  struct Found {
    OwningOpRef<ModuleOp> module;
    std::vector<plan::CostStash> repeats;
    std::mutex mutex;
  };
  auto found = std::make_shared<Found>();
  found->module = std::move(module);
  return [found, target, memory] {
    const std::lock_guard guard(found->mutex);
    if (found->module) {
      found->repeats = findRepeats(*found->module, target, memory);
      found->module = nullptr;
    }
    return found->repeats;
  };
}
