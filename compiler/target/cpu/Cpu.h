//===- Cpu.h - a stage as kernels ------------------------------*- C++ -*-===//
#pragma once

#include "compiler/target/Target.h"
#include "compiler/target/fusion/Math.h"

namespace pipec::cpu {

/// Emits the kernels and tasks of `stage` into the empty module `code`, and
/// says what each task needs. Rewrites the tasks of `stage` on the way.
mlir::LogicalResult emitStage(mlir::ModuleOp stage, mlir::ModuleOp code,
                              bool fuse, const fusion::Machine &machine,
                              target::StageCode &result);

} // namespace pipec::cpu
