//===- AllStrategies.h - the fastest of all strategies ----------*- C++ -*-===//
#pragma once

#include "compiler/driver/Planning.h"

namespace pipec {

/// The fastest of the synchronous strategies, on all devices or, where links
/// cost more than devices bring, on half of them, a quarter …: with more of
/// them a plan is never slower. Throws as decide().
Decision decideBest(const CompileOptions &options, const plan::CostGraph &graph,
                    const ModelFacts &facts);

} // namespace pipec
