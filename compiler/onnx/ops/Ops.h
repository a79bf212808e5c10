//===- Ops.h - what every family of importers includes ----------*- C++ -*-===//
//
// The importers are declared by the rows of OpTable.def: a function without a
// row is a compiler warning, a row without a function a link error.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "compiler/onnx/NodeContext.h"

namespace pipec::onnx {
#define ONNX_OP(FUNCTION, DOMAIN, NAME, SINCE, LIMITS)                         \
  void FUNCTION(NodeContext &);
#include "compiler/onnx/OpTable.def"
} // namespace pipec::onnx
