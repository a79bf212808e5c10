//===- Toolkit.h - what is installed of CUDA -------------------*- C++ -*-===//
#pragma once

#include "llvm/ADT/StringRef.h"

#include <string>

namespace pipec::cuda {

/// Programs and files of a CUDA toolkit; empty where there is none. Looked for
/// in $CUDA_HOME or $CUDA_PATH when one is set; else where the ptxas of $PATH
/// is, and in /usr/local/cuda.
struct Toolkit {
  std::string ptxas;     // the assembler
  std::string libdevice; // bitcode of math functions

  static Toolkit find();
};

} // namespace pipec::cuda
