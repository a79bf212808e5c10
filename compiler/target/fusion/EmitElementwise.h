//===- EmitElementwise.h - one nn op at one point --------------*- C++ -*-===//
#pragma once

#include "compiler/target/fusion/Math.h"

namespace pipec::fusion {

/// The arith and math ops of an elementwise nn op on scalars or vectors. Scalar
/// operands are spread when another is a vector. Null when the op has no code
/// for its element type.
mlir::Value emitElementwise(mlir::ImplicitLocOpBuilder &b,
                            const Machine &machine, mlir::Operation *op,
                            llvm::ArrayRef<mlir::Value> operands);

/// f16 and bf16 as f32; others as they are. And back.
mlir::Value widened(mlir::ImplicitLocOpBuilder &b, const Machine &machine,
                    mlir::Value value);
mlir::Value narrowed(mlir::ImplicitLocOpBuilder &b, const Machine &machine,
                     mlir::Value value, mlir::Type element);

/// One step of a reduction of `kind`.
mlir::Value emitCombine(mlir::ImplicitLocOpBuilder &b, const Machine &machine,
                        llvm::StringRef kind, mlir::Value x, mlir::Value y);
/// What a reduction of nothing gives.
mlir::Value emitIdentity(mlir::ImplicitLocOpBuilder &b, llvm::StringRef kind,
                         mlir::Type type);

} // namespace pipec::fusion
