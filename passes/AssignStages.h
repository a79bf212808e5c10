//===- AssignStages.h - writes a partition into the IR ----------*- C++ -*-===//

#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec {

/// Puts `pipe.stage` on every op of `main`: node i of modelNodes(main) goes to
/// the stage whose cuts it has passed. `cuts` ascend and leave no stage empty.
mlir::LogicalResult assignStages(mlir::func::FuncOp main,
                                 llvm::ArrayRef<int64_t> cuts);

} // namespace pipec
