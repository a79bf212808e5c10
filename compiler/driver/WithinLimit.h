//===- WithinLimit.h - plans that keep to the memory there is ---*- C++ -*-===//
//
// What a plan takes is known exactly once its code is planned, and the planner
// searches with an estimate. A plan that turns out too large is planned again
// with less; when nothing fits, what the error names has been tried.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/driver/CompileOptions.h"

#include <functional>

namespace pipec {

/// Thrown by an attempt: a plan is there, and takes more than a device has.
struct OverLimit {
  int64_t bytes, limit;
  int rank, slices;
};

/// Plans and returns the bytes of the fullest device, or -1 where the model is
/// so large that this is not worth an error's advice. Throws OverLimit or
/// Failure.
using Attempt = std::function<int64_t(const CompileOptions &)>;

/// Runs `attempt` with less and less for the planner until what it finds fits;
/// of `--strategy auto` then with strategies of little memory. Throws the
/// plan::NoFit of the smallest plan when nothing does.
int64_t withinLimit(const CompileOptions &options, const Attempt &attempt);

/// The same; what plan::NoFit says would fit has been tried with `trial`.
int64_t withinLimitOrAdvice(const CompileOptions &options,
                            const Attempt &attempt, const Attempt &trial);

} // namespace pipec
