//===- OddWeights.h - weights that are no numbers ---------------*- C++ -*-===//
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace pipec {

/// "weight 'w' holds NaN, first at [1, 2]" of the first parameter that does, or
/// that trains and is infinite (masks may be); "" where all are numbers. Reads
/// every weight.
std::string oddWeight(mlir::ModuleOp module);

} // namespace pipec
