//===- Target.cpp - the table of targets ----------------------------------===//
#include "compiler/target/Target.h"

#include "compiler/target/fusion/Plan.h"

using namespace pipec::target;

namespace pipec::target {
#define PIPEC_TARGET(name, factory, summary) std::unique_ptr<Target> factory();
#include "compiler/target/Targets.def"
#undef PIPEC_TARGET
} // namespace pipec::target

std::vector<std::pair<std::string, std::string>> pipec::target::listTargets() {
  return {
#define PIPEC_TARGET(name, factory, summary) {name, summary},
#include "compiler/target/Targets.def"
#undef PIPEC_TARGET
  };
}

std::unique_ptr<Target> pipec::target::createTarget(llvm::StringRef wanted) {
#define PIPEC_TARGET(name, factory, summary)                                   \
  if (wanted == name)                                                          \
    return factory();
#include "compiler/target/Targets.def"
#undef PIPEC_TARGET
  return nullptr;
}

mlir::LogicalResult pipec::target::compileStage(llvm::StringRef target,
                                                mlir::ModuleOp stage,
                                                const TargetOptions &options,
                                                llvm::StringRef sharedObject,
                                                StageCode &result) {
  return createTarget(target)->compileStage(stage, options, sharedObject,
                                            result);
}

mlir::LogicalResult pipec::target::planStage(llvm::StringRef target,
                                             mlir::ModuleOp stage,
                                             const TargetOptions &options,
                                             std::vector<TaskCode> &tasks) {
  mlir::OwningOpRef<mlir::ModuleOp> source = stage.clone();
  return createTarget(target)->planTasks(
      *source, options.fuse, [&](fusion::TaskPlan &plan) {
        tasks.push_back({plan.name, plan.workspace});
        return mlir::success();
      });
}
