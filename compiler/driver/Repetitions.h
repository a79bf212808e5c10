//===- Repetitions.h - for whom activations are computed again --*- C++ -*-===//
//
// An op of the backward pass that repeats one of the forward pass carries the
// node that it repeats. A stage of that node has the repetition only where it
// also has a node whose gradient reads it, itself or through others: where the
// cut lies between the two it sends the value, and keeps nothing for it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/driver/TaskCosts.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <set>

namespace pipec {

/// On ops of the forward pass, and so on what repeats them.
inline constexpr llvm::StringLiteral kForwardMark = "pipe.forward";
/// On a repetition, a source and the gradient of one: the first node whose
/// gradient reads it, or that the source is for.
inline constexpr llvm::StringLiteral kReader = "pipe.reader";

/// Marks the ops of the forward pass, before it is chosen what is kept.
void markForward(mlir::func::FuncOp main);

/// Notes on every repetition who reads it first.
void markReaders(mlir::func::FuncOp main);

/// The node that an op carries, -1 for none.
int64_t nodeOf(mlir::Operation *op);

/// The first node whose gradient is computed by an op or reads it, -1 for none.
int64_t firstReader(mlir::Operation *op);

/// The nodes whose gradients read a value of the forward pass, itself or what
/// is computed again from it. With `early` also those whose gradients the
/// forward pass computes: of a value that a stage receives, where the stage has
/// not all that is computed so, the backward pass computes them.
std::set<size_t> gradientReaders(mlir::Value v, bool early = false);

} // namespace pipec
