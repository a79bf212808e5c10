//===- Cpu.h - a stage as kernels ------------------------------*- C++ -*-===//
#pragma once

#include "compiler/target/Target.h"
#include "compiler/target/fusion/Math.h"
#include "compiler/target/fusion/Plan.h"

namespace pipec::cpu {

/// Plans the tasks of `stage`, which it rewrites, and hands each to `use`.
mlir::LogicalResult
planTasks(mlir::ModuleOp stage, bool fuse,
          llvm::function_ref<mlir::LogicalResult(fusion::TaskPlan &)> use);

/// What generated code may use of a processor, by LLVM's name or "native".
mlir::FailureOr<fusion::Machine> machineOf(mlir::Location loc,
                                           llvm::StringRef name);

/// Emits the kernels and tasks of `stage` into the empty module `code`, and
/// says what each task needs. Rewrites the tasks of `stage` on the way.
mlir::LogicalResult emitStage(mlir::ModuleOp stage, mlir::ModuleOp code,
                              bool fuse, const fusion::Machine &machine,
                              target::StageCode &result);

} // namespace pipec::cpu
