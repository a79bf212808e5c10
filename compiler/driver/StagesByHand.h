//===- StagesByHand.h - stages and replicas that the options name -*- C++ -*-=//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/plan/Planner.h"

#include <string>
#include <vector>

namespace pipec {

/// Adds to `request` what --stage-file, --replicas and --stages say; its graph
/// and strategy are there. `notes` is then what is to be said of them. Throws
/// Failure(Usage, NoInput, BadPlan).
void readStages(const CompileOptions &options, plan::PlanRequest &request,
                std::vector<std::string> &notes);

} // namespace pipec
