//===- Remedies.h - what would fit where nothing does -----------*- C++ -*-===//
#pragma once

#include "compiler/driver/SmallestPlan.h"
#include "compiler/plan/Infeasible.h"

#include <functional>
#include <optional>
#include <string>

namespace pipec {

/// By how much `bytes` are more than the limit: those that the smallest plan
/// found "needs", or, where that is not counted, "keeps to".
std::string shortageOf(const std::string &needs, int64_t bytes,
                       const std::string &where, int64_t limit);

/// `failure` with what has been tried in place of what the planner believes:
/// the bytes that are missing are those up to the smallest plan, and of each
/// kind of change (recomputation, rounded weights, planner, strategy, fewer or
/// smaller microbatches, fewer pieces, more devices) the first that `fits`;
/// where none does, as few kinds at once as do. `batch` is the dimension that
/// counts samples.
plan::NoFit advised(const CompileOptions &options, const plan::NoFit &failure,
                    const std::optional<Smallest> &smallest,
                    const std::function<bool(const CompileOptions &)> &fits,
                    const std::string &batch);

} // namespace pipec
