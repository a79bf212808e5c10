//===- MeasureMessages.h - what ranks cost each other -----------*- C++ -*-===//
#pragma once

#include "compiler/plan/FitCrowd.h"
#include "compiler/plan/FitMessages.h"

namespace pipec {

struct MessageTimes {
  std::vector<plan::MessageGap> gaps;
  plan::NoteCost note;
  double stepEnd = 0; ///< s
};

/// Compiles little models for two ranks of this machine, runs them with the
/// pipec-run that lies beside this program and reads their traces.
/// `turnSeconds` is what lies between any two tasks. The end of a step is that
/// of one rank where the machine is to have no more, `ranks`. Of `repeats` runs
/// of a model the shortest counts. Takes some seconds.
/// Failure(Exit::Unavailable) says what cannot be run here.
MessageTimes measureMessages(double turnSeconds, int ranks, int repeats);

/// The same for more ranks than there are cores: their tasks and steps, by
/// their profiles.
std::vector<plan::CrowdSample> measureCrowd(int ranks, int repeats);

} // namespace pipec
