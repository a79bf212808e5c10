//===- UnitWork.h - what a call of generated code has to do -----*- C++ -*-===//
#pragma once

#include "compiler/plan/KernelWork.h"
#include "compiler/target/fusion/Math.h"
#include "compiler/target/fusion/Plan.h"

namespace pipec {

/// The work of one unit of a task on a CPU. Its kernel is emitted into
/// `scratch` to be counted, and erased. No kernel for what costs nothing.
mlir::FailureOr<plan::KernelWork> unitWork(const fusion::Unit &unit,
                                           mlir::ModuleOp scratch,
                                           const fusion::Machine &machine,
                                           const plan::ProductTile &tile);

} // namespace pipec
