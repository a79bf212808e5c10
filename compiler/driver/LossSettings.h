//===- LossSettings.h - what stands behind --loss KIND: ----------*- C++
//-*-===//
#pragma once

#include "compiler/driver/CompileOptions.h"
#include "passes/Pipelines.h"

namespace pipec {

/// The loss with its settings read, class weights from their file. Throws
/// Failure.
LossChoice lossChoice(const CompileOptions &options);

} // namespace pipec
