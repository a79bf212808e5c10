//===- Passes.h - the CPU target's steps as passes -------------*- C++ -*-===//
#pragma once

#include "mlir/Pass/Pass.h"

namespace pipec::cpu {
#define GEN_PASS_DECL
#include "compiler/target/cpu/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "compiler/target/cpu/Passes.h.inc"

/// Makes cpu-kernels known to pipec-opt.
inline void registerCpuTargetPasses() { registerPipecCpuPasses(); }
} // namespace pipec::cpu
