//===- EarlyGradients.h - gradients that forward computes -------*- C++ -*-===//
#pragma once

#include "passes/Graph.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SetVector.h"

namespace pipec {

/// An op whose value costs no more than reading what it reads.
bool isCheap(mlir::Operation *op);

/// Moves to the forward pass of a stage that `mayMove` what of its backward
/// pass needs no gradient from elsewhere, which is how a loss begins, up to the
/// values that products read, where these are no more bytes than what then need
/// not be kept: of logits, kept for their gradient alone, the gradient is kept
/// instead, and is computed where the logits are. Returns these values.
llvm::SetVector<mlir::Value>
moveEarlyGradients(mlir::func::FuncOp main, Sources &sources,
                   llvm::function_ref<bool(int64_t stage)> mayMove);

} // namespace pipec
