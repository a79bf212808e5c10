//===- EvenRows.h - matrices whose rows are padded --------------*- C++ -*-===//
//
// GPUs multiply by tensor cores at full speed, and load 16 bytes at a time,
// where rows begin at whole 16 bytes. The rows of a vocabulary of 50257 in bf16
// do not: where a program is free to place such a matrix it leaves a gap behind
// each row. Gaps are never read as numbers.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

namespace pipec::nn {

/// Elements from one row of the last dimension to the next; 0 where rows are
/// even as they are, too short to matter, or not of floating point.
int64_t evenPitch(mlir::RankedTensorType type);

/// The same for a value that a matrix product reads or writes, directly or
/// through reshapes and transposes; 0 for others.
int64_t evenPitch(mlir::Value value);

} // namespace pipec::nn
