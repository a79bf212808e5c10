//===- ShrinkToLimit.h - less and less for the planner ----------*- C++ -*-===//
#pragma once

#include "compiler/driver/WithinLimit.h"
#include "compiler/plan/Infeasible.h"

#include <optional>

namespace pipec {

/// What keeps least of all, for what else may fit: of one microbatch, whatever
/// the number of stages.
inline constexpr const char *kLeast[] = {"naive"};

/// What a plan needs that is over the limit.
plan::NoFit tooLarge(const OverLimit &over);

/// What the planner is given after a plan that is over the limit: less than it
/// took the plan for, or that would come again, and by what it took it for too
/// little: mostly what the tasks work in, which most plans need alike.
int64_t givenAfter(const OverLimit &over, int64_t given);

/// Whether the planner is asked again where it refuses at once.
enum class Asked { Once, Again };

/// The plan that is found with less and less for the planner, from what the
/// options leave it on; what it was given in the end stays in the options. Ends
/// early at one as slow as a `rival` that fits: less memory does not make it
/// faster. What the planner refuses at once it may take for too much: it is
/// asked again, with `Again`, without what code works in. Throws what the
/// smallest plan needs.
Prospect shrinking(CompileOptions &options, const Trial &trial,
                   std::optional<double> rival = std::nullopt,
                   Asked often = Asked::Again);

/// The same of plans that are made; their exit code.
int shrinking(CompileOptions &options, const Attempt &attempt);

} // namespace pipec
