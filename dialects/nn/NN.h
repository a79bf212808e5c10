//===- NN.h - the nn dialect ------------------------------------*- C++ -*-===//

#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/BitVector.h"

namespace pipec::nn {

template <typename ConcreteOp>
class Elementwise : public mlir::OpTrait::TraitBase<ConcreteOp, Elementwise> {};
template <typename ConcreteOp>
class View : public mlir::OpTrait::TraitBase<ConcreteOp, View> {};

/// The type as the ranked tensor it is in this dialect.
inline mlir::RankedTensorType tensorType(mlir::Value v) {
  return llvm::cast<mlir::RankedTensorType>(v.getType());
}
inline bool isFloat(mlir::Value v) {
  return llvm::isa<mlir::FloatType>(tensorType(v).getElementType());
}
/// f16 or bf16.
inline bool isNarrow(mlir::Value v) {
  mlir::Type element = tensorType(v).getElementType();
  return element.isF16() || element.isBF16();
}
/// Bytes of a tensor; i1 takes a byte an element.
int64_t byteSize(mlir::Type type);

int64_t defaultFlops(mlir::Operation *op);
int64_t defaultBytesMoved(mlir::Operation *op);

} // namespace pipec::nn

#include "dialects/nn/NNDialect.h.inc"
#include "dialects/nn/NNInterfaces.h.inc"
#define GET_OP_CLASSES
#include "dialects/nn/NNOps.h.inc"
