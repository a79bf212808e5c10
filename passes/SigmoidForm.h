//===- SigmoidForm.h - 1 + tanh(u) as a sigmoid -----------------*- C++ -*-===//
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec {

/// Writes y / 2 * (1 + tanh(u)), however it is associated, as y sigmoid(2u),
/// and 1 + tanh(u) alone as twice that, of every rough tanh (Rough.h) that
/// nothing else reads: GELU and its gradient in half of the operations, and
/// without what 1 + tanh(u) cancels where u is far below 0.
void useSigmoidForm(mlir::func::FuncOp main);

} // namespace pipec
