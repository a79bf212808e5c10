//===- WidenContractions.h - narrow contractions in f32 --------*- C++ -*-===//
#pragma once

#include "dialects/nn/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec::fusion {

/// Products and convolutions of f16 or bf16 as ones of f32, between casts: what
/// processors without instructions for them do. Products of narrow factors are
/// exact in f32, so the numbers are those of a unit that adds in f32. Products
/// of matrices for which `keeps` is true are left as they are.
void widenContractions(mlir::func::FuncOp func,
                       llvm::function_ref<bool(nn::MatmulOp)> keeps = {});

} // namespace pipec::fusion
