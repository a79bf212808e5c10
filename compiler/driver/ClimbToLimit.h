//===- ClimbToLimit.h - the most a planner can be given ---------*- C++ -*-===//
#pragma once

#include "compiler/driver/WithinLimit.h"

#include <utility>

namespace pipec {

/// So much more than there is, as a part of it, a planner may be given: what it
/// takes a plan for may be a little too much.
inline constexpr int64_t kShareTooMuch = 16;

/// The options of a plan that fits, and that plan.
using Found = std::pair<CompileOptions, Prospect>;

/// `found`, or a faster plan that its planner makes of more memory and that
/// fits as well: the way down to `found` takes large steps, and what lies
/// between the last two may be the plan of a smaller limit. Halves the way
/// between them a few times.
Found climbed(const Found &found, const Trial &trial);

} // namespace pipec
