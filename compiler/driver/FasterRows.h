//===- FasterRows.h - baselines that are faster than the plan ---*- C++ -*-===//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/plan/Planner.h"

#include <string>

namespace pipec {

/// Why the plan is not what `baseline` is, where that is faster: the options
/// that ask for something else, or its memory, which nobody has counted as the
/// plan's has been. Where a limit binds that is said of a slower one, too.
std::string whyNotChosen(const CompileOptions &options,
                         const plan::Baseline &baseline,
                         const plan::PlanResult &own);

} // namespace pipec
