//===- ExpandAttention.h - attention by products and rows ------*- C++ -*-===//
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec::fusion {

/// nn.attention and its gradients in simpler ops, in f32: those for which
/// `isKept` does not speak. Scores are then in the task's workspace.
void expandAttention(
    mlir::func::FuncOp func,
    llvm::function_ref<bool(mlir::Operation *)> isKept = nullptr);

} // namespace pipec::fusion
