//===- SmallestSplit.h - the split that keeps the least ---------*- C++ -*-===//
//
// What a message names as the need, and what a search that comes to nothing
// falls back on: one and the same split, so that a limit that is named fits.
// The search looks at more or fewer places to cut, depending on its effort.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/StepModel.h"

#include <optional>

namespace pipec::plan {

struct SmallestSplit {
  Split split;
  int64_t bytes = 0; ///< of the fullest device
};

/// Of these replicas, or (where there are none) of any shape that the request
/// allows, by greedy packing. Nothing where the strategy has no such stages.
/// The request's limit decides nothing but which unequal shapes are looked at.
std::optional<SmallestSplit> smallestSplit(const PlanRequest &request,
                                           const std::vector<int> &replicas);

/// Makes the split smaller where devices have several stages: packing fits each
/// of them into an even share.
void packTogether(PlanRequest request, SmallestSplit &least);

} // namespace pipec::plan
