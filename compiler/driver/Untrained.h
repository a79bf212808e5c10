//===- Untrained.h - weights that a loss leaves as they are -----*- C++ -*-===//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/onnx/Import.h"

#include <string>
#include <vector>

namespace pipec {

/// The weights that train and that the program reads, in the file's order.
std::vector<std::string> trainedWeights(mlir::ModuleOp module);

/// Says which of the weights `before` the loss was attached it does not depend
/// on, and what it takes instead.
void noteUntrained(const std::vector<std::string> &before,
                   mlir::ModuleOp module, const CompileOptions &options,
                   const onnx::ImportReport &model, Diagnostics &diagnostics);

} // namespace pipec
