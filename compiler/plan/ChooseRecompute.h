//===- ChooseRecompute.h - stages that compute again ------------*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"

namespace pipec::plan {

/// Which stages of a split compute their activations again: none, all
/// (Recompute::Full) or, for Recompute::Auto, of every device that does not
/// hold them otherwise those that spare enough for the least time, device by
/// device (of more than six stages of one the six that spare most first).
std::vector<bool> chooseRecompute(const StepModel &model, const Split &split);

} // namespace pipec::plan
