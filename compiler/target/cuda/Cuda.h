//===- Cuda.h - a stage as device and host code ----------------*- C++ -*-===//
#pragma once

#include "compiler/target/Target.h"
#include "compiler/target/cuda/EmitTask.h"

namespace pipec::cuda {

/// Emits the kernels and tasks of `stage`, and says what each task needs.
/// Rewrites the tasks of `stage` on the way.
mlir::LogicalResult emitStage(mlir::ModuleOp stage, StageEmitter &emitter,
                              bool fuse, target::StageCode &result);

} // namespace pipec::cuda
