//===- BehindText.h - what second place would have cost ---------*- C++ -*-===//
#pragma once

#include <string>

namespace pipec::plan {

/// "1.23 ms a step, +5.6 %", or "as fast" for less than what is printed: of a
/// plan `times` as slow as the best one, whose step has the unit.
std::string behindText(double stepSeconds, double bestStepSeconds,
                       double times);

} // namespace pipec::plan
