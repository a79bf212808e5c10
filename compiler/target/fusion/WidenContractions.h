//===- WidenContractions.h - narrow contractions in f32 --------*- C++ -*-===//
#pragma once

#include "dialects/nn/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec::fusion {

/// What a target's products of bf16 give.
enum class Bf16Products {
  Rounded, ///< bf16, or f32 where the op is wide; convolutions bf16
  Sums     ///< f32; it has no convolutions of bf16
};

/// Convolutions of f16 or bf16 and products of f16 as ones of f32, between
/// casts: what devices without instructions for them do. Products of narrow
/// factors are exact in f32, so the numbers are those of a unit that adds in
/// f32. Products of bf16 keep their factors; where the target's give sums, the
/// op becomes wide, with a cast behind it. Convolutions whose results are
/// rounded to bf16 stay as they are where the target's are; gradients of
/// weights are f32.
void widenContractions(mlir::func::FuncOp func, Bf16Products products);

} // namespace pipec::fusion
