//===- Expand.h - composed ops in terms of simpler ones --------*- C++ -*-===//
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec::cpu {

/// softmax as a row group, cumsum as log2(n) shifted additions.
void expandComposedOps(mlir::func::FuncOp func);

} // namespace pipec::cpu
