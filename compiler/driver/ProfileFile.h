//===- ProfileFile.h - what --profile says of a model -----------*- C++ -*-===//
#pragma once

#include "compiler/driver/Planning.h"

namespace pipec {

/// Replaces the graph's times by those of --profile, if given, without what
/// stashes cost in the step that it was measured in (plan/FarStash), and the
/// topology's turns and messages by what fits that step where it had as many
/// devices. Of a step that the planner cannot price stashes are left in the
/// times. A note where the times are from ranks of other threads.
/// Throws Failure(NoInput, BadPlan).
void applyProfileFile(const CompileOptions &options, ModelFacts &facts,
                      plan::CostGraph &graph);

} // namespace pipec
