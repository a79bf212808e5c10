//===- Bounds.h - what no order can beat ------------------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

namespace pipec::schedule::search {

/// A lower bound of problem.metric over all orders on this placement. Counts,
/// for each device, its work and the time it must be idle before and after:
/// before its first microbatch arrives, between running out of memory and the
/// first input gradient, and after its last input gradient; and for how long it
/// must hold activations.
double lowerBound(const Problem &problem);

/// The time for which some device holds activations, at least: 0 without
/// limits.
double holding(const Problem &problem);

} // namespace pipec::schedule::search
