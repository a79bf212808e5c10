//===- JoinKernel.h - several launches of a kernel as one ------*- C++ -*-===//
#pragma once

#include "compiler/target/cuda/EmitKernel.h"

namespace pipec::cuda {

/// Emits a kernel that does what `count` launches of `kernel` with `blocks`
/// blocks each do, with the arguments of one after those of the other: a little
/// kernel takes as long as its launch.
mlir::func::FuncOp joinKernel(mlir::ModuleOp module, llvm::StringRef name,
                              mlir::func::FuncOp kernel, int64_t blocks,
                              size_t count);

} // namespace pipec::cuda
