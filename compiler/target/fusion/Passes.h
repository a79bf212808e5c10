//===- Passes.h - the steps that all targets share -------------*- C++ -*-===//
#pragma once

#include "mlir/Pass/Pass.h"

namespace pipec::fusion {
#define GEN_PASS_DECL
#include "compiler/target/fusion/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "compiler/target/fusion/Passes.h.inc"

/// Makes fusion-expand, fusion-widen-contractions and fusion-stash known to
/// pipec-opt.
inline void registerFusionPasses() { registerPipecFusionPasses(); }
} // namespace pipec::fusion
