//===- Remedies.h - what would fit where nothing does -----------*- C++ -*-===//
#pragma once

#include "compiler/driver/SmallestPlan.h"
#include "compiler/plan/Infeasible.h"

#include <functional>
#include <optional>
#include <string>

namespace pipec {

/// `failure` with what has been tried in place of what the planner believes:
/// the bytes that are missing are those up to the smallest plan, and of each
/// kind of change (recomputation, strategy, fewer or smaller microbatches,
/// fewer pieces, more devices) the first that `fits`; where none does, as few
/// kinds at once as do. `batch` is the dimension that counts samples.
plan::NoFit advised(const CompileOptions &options, const plan::NoFit &failure,
                    const std::optional<Smallest> &smallest,
                    const std::function<bool(const CompileOptions &)> &fits,
                    const std::string &batch);

} // namespace pipec
