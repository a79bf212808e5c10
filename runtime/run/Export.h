//===- Export.h - the model with trained weights ----------------*- C++ -*-===//
#pragma once

#include "runtime/state/TensorExchange.h"

namespace pipec {

/// Gives the newest value of weight or state `index` to a sink.
using Fetch = std::function<void(int index, const Sink &)>;

/// Writes the compiled model with the weights and states that training has
/// changed.
void exportModel(const plan::Plan &plan, const std::string &planFolder,
                 const std::string &target, const Fetch &fetch);

/// Failure(Usage) when `target` is the model itself, Failure(CannotWrite) when
/// it could not be written: known before training.
void checkExport(const plan::Plan &plan, const std::string &planFolder,
                 const std::string &target);

} // namespace pipec
