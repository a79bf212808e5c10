//===- WidenContractions.h - narrow contractions in f32 --------*- C++ -*-===//
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec::cpu {

/// Products and convolutions of f16 or bf16 as ones of f32, between casts: what
/// processors without instructions for them do. Products of narrow factors are
/// exact in f32, so the numbers are those of a unit that adds in f32.
void widenContractions(mlir::func::FuncOp func);

} // namespace pipec::cpu
