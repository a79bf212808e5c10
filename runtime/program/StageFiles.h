//===- StageFiles.h - the stage programs of a plan on disk ------*- C++ -*-===//
#pragma once

#include "runtime/program/Plan.h"

#include <string>

namespace pipec::plan {

/// Throws Failure(BadPlan) that names the file where the program of `stage` in
/// the plan's folder is missing or not the one that was compiled.
void checkStageFile(const std::string &folder, const Stage &stage);

/// Of all stages, and of those that evaluate what the plan trains.
void checkStageFiles(const std::string &folder, const Plan &plan);

/// The plan that evaluates what the one in `folder` trains. Throws
/// Failure(NoInput) or Failure(BadPlan) with what helps.
Plan readEvaluation(const std::string &folder);

} // namespace pipec::plan
