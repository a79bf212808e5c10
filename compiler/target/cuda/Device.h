//===- Device.h - kernels as PTX and cubins --------------------*- C++ -*-===//
#pragma once

#include "compiler/target/cuda/Toolkit.h"

#include "mlir/IR/BuiltinOps.h"

namespace llvm {
class Module;
} // namespace llvm

namespace pipec::cuda {

/// The oldest chip that code is generated for; newer ones run it as well.
constexpr int kOldestChip = 80;
/// Chips that get machine code of their own.
constexpr int kChips[] = {80, 90};

/// Makes known what device modules contain.
void registerDeviceDialects(mlir::MLIRContext &context);

/// Kernels (functions with cuda.threads) to PTX for compute capability 8.0, if
/// `wantsPtx`.
/// `llvmText`, if wanted, receives the optimized LLVM IR, without the bodies of
/// libdevice's functions. Fails with a diagnostic; throws Failure (Unavailable)
/// when one of those functions is needed and libdevice is not installed.
mlir::FailureOr<std::string> compileToPtx(mlir::ModuleOp device,
                                          const Toolkit &toolkit, bool wantsPtx,
                                          std::string *llvmText);

/// PTX to the machine code of a chip by ptxas, whose report (registers, spills)
/// is appended to `report`.
mlir::FailureOr<std::string> assemble(mlir::Location loc,
                                      const std::string &ptx, int chip,
                                      const Toolkit &toolkit,
                                      std::string &report);

} // namespace pipec::cuda
