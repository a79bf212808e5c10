//===- GradientTrace.h - when a task is done with gradients -----*- C++ -*-===//
//
// The host part of a stage for GPUs is straight-line code that hands calls to a
// table (StageAbi.h). Called with a table that only looks at the addresses, it
// tells which of the calls is the last that touches an accumulator.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/StageAbi.h"
#include "runtime/program/Buckets.h"

#include <cstdint>
#include <vector>

namespace pipec {

/// A bucket of gradients, and after how many calls of a task it is complete.
struct CompleteBucket {
  int64_t bucket = 0, calls = 0;
};

/// All buckets of a stage whose backward pass ends with `task`, in the order in
/// which they are complete. The same on every replica.
std::vector<CompleteBucket> completion(PipecTask task, const plan::Plan &plan,
                                       const plan::Stage &stage,
                                       const plan::Buckets &buckets);

} // namespace pipec
