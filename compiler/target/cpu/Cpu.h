//===- Cpu.h - a stage as kernels ------------------------------*- C++ -*-===//
#pragma once

#include "compiler/target/Target.h"
#include "compiler/target/cpu/Math.h"
#include "compiler/target/cpu/Plan.h"

namespace pipec::cpu {

/// Emits the kernels and tasks of `stage` into the empty module `code`, and
/// says what each task needs. Rewrites the tasks of `stage` on the way.
mlir::LogicalResult emitStage(mlir::ModuleOp stage, mlir::ModuleOp code,
                              const PlanOptions &options,
                              const Machine &machine,
                              target::StageCode &result);

} // namespace pipec::cpu
