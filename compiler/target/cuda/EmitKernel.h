//===- EmitKernel.h - a kernel plan as a device function -------*- C++ -*-===//
#pragma once

#include "compiler/target/fusion/PointEmitter.h"

namespace pipec::cuda {

/// The number of threads of a block, on a kernel's function.
constexpr llvm::StringLiteral kThreadsAttr = "cuda.threads";
/// How many of its blocks have to run at a time: a bound for registers in place
/// of what ptxas makes up, which spills.
constexpr llvm::StringLiteral kLeastBlocksAttr = "cuda.least_blocks";
/// Shared memory of every kernel; how much is said at launch.
constexpr llvm::StringLiteral kSharedMemory = "pipec_shared";
/// Of a block, without asking the driver for more.
constexpr int64_t kSharedLimit = 48 * 1024;

/// A device function whose arguments are pointers, and how it is launched.
struct KernelCode {
  mlir::func::FuncOp function;
  llvm::SmallVector<fusion::KernelArgument> arguments;
  /// Blocks of one launch; 0 when there is nothing to do.
  int64_t blocks = 0;
  int64_t threads = 0, sharedBytes = 0;
};

/// Emits `func.func @name(arguments)` into the module. `buffers` are those of
/// the task, whose offsets tell how addresses are aligned. With `mayHold` a
/// kernel may want more shared memory than kSharedLimit: the same numbers.
/// Fails with a diagnostic at an op without code.
mlir::FailureOr<KernelCode> emitKernel(mlir::ModuleOp module,
                                       llvm::StringRef name,
                                       const fusion::KernelPlan &plan,
                                       llvm::ArrayRef<fusion::Buffer> buffers,
                                       bool mayHold);

} // namespace pipec::cuda
