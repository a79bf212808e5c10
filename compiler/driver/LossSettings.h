//===- LossSettings.h - what stands behind --loss KIND: ---------*- C++ -*-===//

#pragma once

#include "compiler/driver/CompileOptions.h"
#include "compiler/onnx/Import.h"
#include "passes/Pipelines.h"
#include "runtime/program/Plan.h"

namespace pipec {

/// The loss with its settings read, class weights from their file. Throws
/// Failure.
LossChoice lossChoice(const CompileOptions &options);

/// Are the output and the input that the options name the loss's in the model?
/// A label that is not may be a new input, unless it looks like a mistake.
/// Adds problems of usage.
void checkLossNames(const CompileOptions &options,
                    const onnx::ImportReport &model, Diagnostics &diagnostics);

/// Says which of the program's inputs the loss has added, where the user chose
/// its name or the model has one very like it.
void noteLabel(const CompileOptions &options, const onnx::ImportReport &model,
               const std::vector<plan::Input> &inputs,
               Diagnostics &diagnostics);

} // namespace pipec
