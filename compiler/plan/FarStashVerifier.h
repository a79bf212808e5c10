//===- FarStashVerifier.h - FarStash.h, computed again ----------*- C++ -*-===//
#pragma once

#include "compiler/plan/Planner.h"

#include <vector>

namespace pipec::plan {

/// Of one device of a stage, as the verifier found it.
struct FoundBytes {
  int64_t touched = 0; ///< all but what updates alone read
  int64_t slot = 0;    ///< of a microbatch's stash
};

/// Throws Failure(Exit::Internal) where a stage's farStashSeconds are not what
/// its device's memory says.
void verifyFarStash(const PlanRequest &request, const PlanResult &result,
                    const std::vector<FoundBytes> &found);

} // namespace pipec::plan
