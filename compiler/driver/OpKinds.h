//===- OpKinds.h - what an operator is to a device --------------*- C++ -*-===//
#pragma once

#include "compiler/plan/DeviceModel.h"
#include "mlir/IR/Operation.h"

namespace pipec {

plan::OpKind kindOf(mlir::Operation *op);

/// The type that decides which units of a device a contraction runs on.
plan::DType dtypeOf(mlir::Operation *op);

} // namespace pipec
