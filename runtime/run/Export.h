//===- Export.h - the model with trained weights ----------------*- C++ -*-===//
#pragma once

#include "runtime/state/TensorExchange.h"

namespace pipec {

/// Rank 0: writes the compiled model with the weights and states that training
/// has changed. The other ranks serve the exchange meanwhile.
void exportModel(const plan::Plan &plan, const std::string &planFolder,
                 const std::string &target, TensorExchange &exchange);

/// Failure(Usage) when `target` is the model itself, Failure(CannotWrite) when
/// it could not be written: known before training.
void checkExport(const plan::Plan &plan, const std::string &planFolder,
                 const std::string &target);

} // namespace pipec
