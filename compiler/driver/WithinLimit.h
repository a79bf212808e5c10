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
  double seconds = 0;  ///< of its step
  int64_t planned = 0; ///< bytes in the planner's estimate; 0: not known
  bool recomputesAll = false; ///< no stage keeps its activations
};

/// A plan that would be made: bytes of the fullest device, seconds of a step,
/// and what the planner took it for.
struct Prospect {
  int64_t bytes;
  double seconds;
  int64_t planned = 0;
  bool recompute = false; ///< some activations are computed again
};

/// Makes a plan, its exit code; throws OverLimit or Failure.
using Attempt = std::function<int(const CompileOptions &)>;

/// The same plan without making it; -1 byte where the model is so large that
/// this is not worth it.
using Trial = std::function<Prospect(const CompileOptions &)>;

/// Runs `attempt` with less and less for the planner until what it finds fits.
/// What `--strategy auto` takes for the fastest may fit in the planner's
/// estimate alone: then it is the fastest of the strategies' plans that do fit.
/// Throws the plan::NoFit of the smallest plan when nothing does; what it says
/// would fit has been tried: another limit, recomputation, strategy, fewer or
/// smaller microbatches (`batch` is the dimension that counts their samples, to
/// be there after the attempt), more devices.
int withinLimit(const CompileOptions &options, const Attempt &attempt,
                const Trial &trial, const std::string &batch = "");

/// The same, but for what would fit: the refusal says what is needed.
int withinLimitUnadvised(const CompileOptions &options, const Attempt &attempt,
                         const Trial &trial);

} // namespace pipec
