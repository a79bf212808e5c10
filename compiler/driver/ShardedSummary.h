//===- ShardedSummary.h - a plan whose stages divide operators --*- C++ -*-===//
//
// Such a plan is priced and shown, not compiled: a stage's program is one
// device's.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/plan/Planner.h"
#include "compiler/plan/WhatIf.h"

#include <string>
#include <vector>

namespace pipec {

/// Whether a device's part of some stage is less than the stage.
bool isSharded(const plan::PlanResult &plan);

std::string shardedSummary(const CompileOptions &options,
                           const plan::PlanRequest &request,
                           const plan::PlanResult &plan,
                           const std::vector<plan::WhatIfRow> &rows);
/// The same as JSON, with what every operator and weight is divided by.
std::string shardedJson(const plan::PlanRequest &request,
                        const plan::PlanResult &plan,
                        const std::vector<plan::WhatIfRow> &rows);

} // namespace pipec
