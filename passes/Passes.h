//===- Passes.h - IR to IR --------------------------------------*- C++ -*-===//

#pragma once

#include "mlir/Pass/Pass.h"

namespace pipec {
#define GEN_PASS_DECL
#include "passes/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"
} // namespace pipec
