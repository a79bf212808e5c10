//===- Infeasible.h - say by how much, and what would fit -------*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"

namespace pipec::plan {

/// Throws Failure(Exit::NoFit): the smallest limit under which a plan of this
/// shape (or, when empty, of any allowed one) would fit, and what else would
/// make it fit: recomputation, more devices, another strategy.
[[noreturn]] void throwNoFit(const PlanRequest &request, const StepModel &model,
                             const std::vector<int> &replicas);

/// "1.5 GiB", "12 MiB" …
std::string formatBytes(int64_t bytes);

} // namespace pipec::plan
