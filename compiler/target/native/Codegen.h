//===- Codegen.h - from kernels to a shared object -------------*- C++ -*-===//
//
// What runs on the processor: all of a CPU's stage, and the host part of a
// GPU's.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/Target.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace pipec::native {

/// Registers what the module below may contain.
void registerLoweringDialects(mlir::MLIRContext &context);
/// Upstream dialects -> LLVM dialect, in place.
mlir::LogicalResult lowerToLlvm(mlir::ModuleOp module);

/// A processor by LLVM's name, or "native".
mlir::FailureOr<std::unique_ptr<llvm::TargetMachine>>
createMachine(mlir::Location loc, llvm::StringRef cpu);

/// Runs passes, named as `opt -passes` names them.
void optimize(llvm::Module &module, llvm::TargetMachine &machine,
              llvm::StringRef passes);

/// Upstream dialects to a shared object at that path, if one is given, and to
/// `result.object` if that is kept. `llvmText`, if wanted, receives the
/// optimized LLVM IR.
mlir::LogicalResult
compileShared(mlir::ModuleOp module, llvm::TargetMachine &machine,
              const target::TargetOptions &options, std::string *llvmText,
              llvm::StringRef sharedObject, target::StageCode &result);

/// Links one object into a shared object with the linker of LLVM.
mlir::LogicalResult linkShared(mlir::Location loc, llvm::StringRef object,
                               llvm::StringRef path);

} // namespace pipec::native
