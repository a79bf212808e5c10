//===- Pipe.h - the pipe dialect --------------------------------*- C++ -*-===//

#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/pipe/PipeDialect.h.inc"
#define GET_OP_CLASSES
#include "dialects/pipe/PipeOps.h.inc"

namespace pipec::pipe {

/// Attribute of a nested module that is a stage: its id (i64).
inline constexpr llvm::StringLiteral kStageAttr = "pipe.stage";
/// Attribute of a func.func that is a task: its name (string).
inline constexpr llvm::StringLiteral kTaskAttr = "pipe.task";

/// Region names in the order of runtime/StageAbi.h's PipecRegion.
llvm::ArrayRef<llvm::StringRef> regionNames();
/// Position of `region` in regionNames(), or -1.
int regionIndex(llvm::StringRef region);

/// Strides and bytes of a row-major tensor whose rows (of the last dimension)
/// lie `pitch` elements apart; 0: side by side.
llvm::SmallVector<int64_t> placeStrides(mlir::Type type, int64_t pitch);
int64_t placeBytes(mlir::Type type, int64_t pitch);

} // namespace pipec::pipe
