//===- Overwrite.h - outputs of a run that it reads -------------*- C++ -*-===//
#pragma once

#include "runtime/run/Options.h"

namespace pipec {

/// Throws Failure(Usage) where a file that the run is to write is its data, the
/// model, a part of the plan or another that it writes.
void refuseToOverwrite(const plan::Plan &plan, const RunOptions &options);

} // namespace pipec
