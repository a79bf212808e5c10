//===- Npy.h - arrays for --constant ----------------------------*- C++ -*-===//

#pragma once

#include "compiler/onnx/Model.h"

namespace pipec::onnx {

/// Reads a NumPy .npy file (versions 1 to 3, C or Fortran order, little endian)
/// into a tensor with bytes of its own. On failure `problem` says why and
/// `missingFile` whether the file was not there.
TensorData readNpy(const std::string &path);

} // namespace pipec::onnx
