//===- EvenPadding.h - convolutions as cuDNN takes them --------*- C++ -*-===//
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pipec::cuda {

/// cuDNN pads both ends of an axis alike and makes every output there is. Where
/// a convolution differs along an axis, its input is padded or cropped before,
/// and the gradient of that input after.
void evenPadding(mlir::func::FuncOp func);

} // namespace pipec::cuda
