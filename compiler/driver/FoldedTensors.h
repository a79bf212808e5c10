//===- FoldedTensors.h - weights that no file has as they are ---*- C++ -*-===//
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>

namespace pipec {

/// Name to bytes of the parameters that are no bytes of a file as they are:
/// computed at import, or of another type there. Throws Failure(NoInput).
std::map<std::string, std::string> foldedTensors(mlir::ModuleOp module);

} // namespace pipec
