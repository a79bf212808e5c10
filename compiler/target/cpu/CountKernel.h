//===- CountKernel.h - how often a kernel's instructions run ----*- C++ -*-===//
#pragma once

#include "compiler/plan/KernelWork.h"
#include "compiler/target/cpu/EmitKernel.h"

namespace pipec::cpu {

/// Counts the code of a kernel before LLVM has it: what does not depend on a
/// loop counts as if it stood before it.
plan::InstructionCounts countKernel(const KernelCode &code,
                                    const fusion::KernelPlan &plan);

} // namespace pipec::cpu
