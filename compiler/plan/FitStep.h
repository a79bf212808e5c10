//===- FitStep.h - what a measured step takes beside its tasks --*- C++ -*-===//
//
// A profile has the times of tasks. What else a step consists of depends on the
// machine: the words of ranks with each other, their waits for messages, ranks
// that take turns on its cores. The step that a profile was measured in says
// how much of that there is.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/StepModel.h"

namespace pipec::plan {

/// The request's topology with which `split` takes `seconds`: a step predicted
/// too short is given more time between tasks (DeviceModel::turnSeconds), up to
/// 20 us, then longer tasks (stretchFactor); one
/// predicted too long shorter turns, waits and transfers, down to a twentieth.
/// `split` must be one that StepModel can price. Deterministic.
Topology fitStep(const PlanRequest &request, const Split &split,
                 double seconds);

} // namespace pipec::plan
