//===- Passes.h - the CUDA target's steps as passes ------------*- C++ -*-===//
#pragma once

#include "mlir/Pass/Pass.h"

namespace pipec::cuda {
#define GEN_PASS_DECL
#include "compiler/target/cuda/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "compiler/target/cuda/Passes.h.inc"

/// Makes cuda-kernels known to pipec-opt.
inline void registerCudaTargetPasses() { registerPipecCudaPasses(); }
} // namespace pipec::cuda
