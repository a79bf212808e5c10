//===- Target.h - from a stage to native code ------------------*- C++ -*-===//
//
// A target turns the tasks of one stage (functions of nn and pipe ops after
// memory planning) into a shared object that follows runtime/StageAbi.h.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pipec::fusion {
struct TaskPlan;
} // namespace pipec::fusion

namespace pipec::target {

struct TargetOptions {
  /// Processor to generate for, as LLVM names it; "native" is this machine's.
  std::string cpu = "native";
  /// Whether several ops become one kernel. Off only to check that the results
  /// do not depend on it.
  bool fuse = true;
  /// Which intermediate forms to keep as text in StageCode.
  bool keepKernels = false, keepLlvm = false, keepObject = false;
  /// GPUs alone: stop at the list of calls.
  bool keepCalls = false;
  /// How far code for GPUs is taken. Machine code needs their assembler: where
  /// it is not installed there is PTX alone.
  enum GpuCode { GpuLlvm, GpuPtx, GpuMachine };
  GpuCode gpuCode = GpuMachine;
};

struct TaskCode {
  std::string name;           // as in pipe.task
  int64_t workspaceBytes = 0; // what the task needs of PIPEC_WORKSPACE, exact
};

struct StageCode {
  std::vector<TaskCode> tasks;
  std::string kernels; // MLIR: fused kernels in upstream dialects
  std::string llvm;    // LLVM IR after optimization
  std::string object;  // bytes of the object file
  int kernelCount = 0; // distinct kernels
  // GPUs alone
  std::string calls; // a table of what tasks call
  std::string ptx;
  std::map<int, std::string> cubins; // by compute capability, as 90
  std::string assemblerReport;       // of ptxas: registers, spills
};

class Target {
public:
  virtual ~Target() = default;
  /// Plans every task of `stage`, which it rewrites, as compileStage would, and
  /// hands each to `use`.
  virtual mlir::LogicalResult
  planTasks(mlir::ModuleOp stage, bool fuse,
            llvm::function_ref<mlir::LogicalResult(fusion::TaskPlan &)> use)
      const = 0;
  /// Compiles every func.func of `stage` with the attribute `pipe.task`. The
  /// module is not changed. An empty `sharedObject` stops after the object.
  /// Errors are diagnostics at the op they concern.
  virtual mlir::LogicalResult compileStage(mlir::ModuleOp stage,
                                           const TargetOptions &options,
                                           llvm::StringRef sharedObject,
                                           StageCode &result) const = 0;
};

/// Names in Targets.def, with their summaries.
std::vector<std::pair<std::string, std::string>> listTargets();
/// Null when there is no row of that name.
std::unique_ptr<Target> createTarget(llvm::StringRef name);

/// By the row of that name, which exists.
mlir::LogicalResult compileStage(llvm::StringRef target, mlir::ModuleOp stage,
                                 const TargetOptions &options,
                                 llvm::StringRef sharedObject,
                                 StageCode &result);

/// What compileStage would say of the tasks, without making code. The module is
/// not changed.
mlir::LogicalResult planStage(llvm::StringRef target, mlir::ModuleOp stage,
                              const TargetOptions &options,
                              std::vector<TaskCode> &tasks);

} // namespace pipec::target
