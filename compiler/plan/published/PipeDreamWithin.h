//===- PipeDreamWithin.h - PipeDream's plans under a limit ------*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PipeDreamSearch.h"

namespace pipec::published {

/// The fastest plan of the published space, over all numbers of machines, whose
/// stages keep at most `limit` bytes on a device (PipeDreamMemory.h); infinite
/// seconds where there is none of at most `incumbent`.
PipeDreamPlan searchWithin(const CutStates &states,
                           const std::vector<PipeDreamLevel> &levels,
                           double limit, double incumbent,
                           SearchEffort &effort);

} // namespace pipec::published
