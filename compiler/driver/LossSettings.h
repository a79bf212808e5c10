//===- LossSettings.h - what stands behind --loss KIND: ---------*- C++ -*-===//

#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/onnx/Import.h"
#include "passes/Pipelines.h"

namespace pipec {

/// The loss with its settings read, class weights from their file. Throws
/// Failure.
LossChoice lossChoice(const CompileOptions &options);

/// Are the output and the input that the options name the loss's in the model?
/// Adds problems of usage.
void checkLossNames(const CompileOptions &options,
                    const onnx::ImportReport &model, Diagnostics &diagnostics);

} // namespace pipec
