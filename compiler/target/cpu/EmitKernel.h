//===- EmitKernel.h - a kernel plan as a function --------------*- C++ -*-===//
#pragma once

#include "compiler/target/fusion/PointEmitter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec::cpu {

struct KernelCode {
  mlir::func::FuncOp function;
  llvm::SmallVector<fusion::KernelArgument> arguments;
  /// The range that the calls together cover, and the least part of it.
  int64_t count = 0, grain = 1;
};

/// Emits `func.func @name(lo, hi, arguments)` into the module, which computes
/// [lo, hi) of `count`. Fails with a diagnostic at an op without code.
mlir::FailureOr<KernelCode> emitKernel(mlir::ModuleOp module,
                                       llvm::StringRef name,
                                       const fusion::KernelPlan &plan,
                                       const fusion::Machine &machine);

} // namespace pipec::cpu
