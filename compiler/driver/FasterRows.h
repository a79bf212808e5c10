//===- FasterRows.h - baselines that are faster than the plan ---*- C++ -*-===//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/plan/Planner.h"

#include <string>

namespace pipec {

/// Why the plan, of steps of `seconds`, is not what `baseline` is: the options
/// that ask for something else, or its memory, which nobody has counted as the
/// plan's has been. Nothing where the baseline is no faster.
std::string whyNotChosen(const CompileOptions &options,
                         const plan::Baseline &baseline, double seconds);

} // namespace pipec
