//===- SliceSequence.h - can a program be cut into pieces -------*- C++ -*-===//

#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace pipec {

/// Positions of the sequence that the loss sums over; failure after an error
/// when it is no sum over positions.
mlir::FailureOr<int64_t> sequenceLength(mlir::ModuleOp module);

/// Fails after an error at the first op that keeps nn-slice-sequence from
/// cutting the `length` positions into `slices` pieces, 1 <= slices <= length.
mlir::LogicalResult checkSlices(mlir::ModuleOp module, int64_t length,
                                int64_t slices);

} // namespace pipec
