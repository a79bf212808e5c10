//===- Constants.h - weights that stand in Constant nodes -------*- C++ -*-===//
#pragma once

#include "compiler/onnx/Model.h"

namespace pipec::onnx {

/// Paddle's exporter writes weights as Constant nodes. In a file that has such
/// matrices and no floating-point initializer, they become initializers named
/// as the nodes' outputs; an export writes them as such.
void liftConstants(Model &model);

} // namespace pipec::onnx
