//===- Expand.h - composed ops in terms of simpler ones --------*- C++ -*-===//
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace pipec::fusion {

/// softmax as a row group, cumsum as log2(n) shifted additions, sums of padded
/// parts that do not overlap as one concat.
void expandComposedOps(mlir::func::FuncOp func);

/// What the tasks of a stage keep for each other is stored in the order that
/// the later task needs, when that saves it a copy.
void settleStash(mlir::ModuleOp stage);

} // namespace pipec::fusion
