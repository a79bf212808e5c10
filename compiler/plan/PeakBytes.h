//===- PeakBytes.h - what the fullest device of a plan holds ----*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

namespace pipec::plan {

/// Largest bytes on any device: all of its stages, and one workspace and one
/// place for sums of gradients, since one of them works at a time.
int64_t peakBytes(const std::vector<StagePlan> &stages);

} // namespace pipec::plan
