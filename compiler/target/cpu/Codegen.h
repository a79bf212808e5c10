//===- Codegen.h - from kernels to a shared object -------------*- C++ -*-===//
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace pipec::cpu {

/// Registers what the module below may contain.
void registerLoweringDialects(mlir::MLIRContext &context);
/// Upstream dialects -> LLVM dialect, in place.
mlir::LogicalResult lowerToLlvm(mlir::ModuleOp module);

/// A processor by LLVM's name, or "native".
mlir::FailureOr<std::unique_ptr<llvm::TargetMachine>>
createMachine(mlir::Location loc, llvm::StringRef cpu);

/// Translates, optimizes and compiles. `llvmText`, if wanted, receives the
/// optimized LLVM IR.
mlir::FailureOr<std::string> compileToObject(mlir::ModuleOp module,
                                             llvm::TargetMachine &machine,
                                             std::string *llvmText);

/// Links one object into a shared object with the linker of LLVM.
mlir::LogicalResult linkShared(mlir::Location loc, llvm::StringRef object,
                               llvm::StringRef path);

} // namespace pipec::cpu
