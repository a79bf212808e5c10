//===- CompileFiles.h - what a compile reads and writes ---------*- C++ -*-===//
#pragma once

#include "compiler/driver/CompileOptions.h"

#include <string>
#include <vector>

namespace pipec {

/// The plan folder that a compile makes: -o, or MODEL.plan.
std::string outputFolder(const CompileOptions &options);

/// The files that the command line says to read.
std::vector<std::string> inputFiles(const CompileOptions &options);

/// Throws Failure(Usage) where a file that is to be written is one of `inputs`
/// or another output, and where the folder that becomes the plan holds one of
/// them. A plan's own plan.json and schedule.csv are no reason: the plan that
/// takes its place has both, with the stages and the order that were read.
void refuseToOverwrite(const CompileOptions &options,
                       const std::vector<std::string> &inputs);

} // namespace pipec
