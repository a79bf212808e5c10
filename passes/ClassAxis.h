//===- ClassAxis.h - where logits have their classes ------------*- C++ -*-===//
#pragma once

#include "mlir/IR/Value.h"

#include <cstdint>

namespace pipec {

/// The axis that a loss takes where nobody says another: axis 1 of images, rank
/// 4, else the last one.
int64_t usualClassAxis(int64_t rank);

/// The other axis that classes may be on, or -1: axis 1, where PyTorch and ONNX
/// have them at every rank, or the last one.
int64_t otherClassAxis(int64_t rank);

/// The axis that the layer behind `logits` makes, which tells classes from
/// places: the last of a product with a weight, axis 1 of a convolution. -1
/// where neither is behind it.
int64_t axisThatLayerMakes(mlir::Value logits);

} // namespace pipec
