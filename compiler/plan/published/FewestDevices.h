//===- FewestDevices.h - one level's plans without a limit ------*- C++ -*-===//
#pragma once

#include "compiler/plan/published/PipeDreamSearch.h"

namespace pipec::published {

/// The fastest plan of one level below `incumbent` that memory does not bind,
/// whatever the number of devices: from which states on so many reach a time is
/// one number for each state. That is asked with times that close in on the
/// fastest plan's, and ends just below it; each time takes O(states^2).
PipeDreamPlan searchFewest(const CutStates &states, const PipeDreamLevel &level,
                           double incumbent, SearchEffort &effort);

} // namespace pipec::published
