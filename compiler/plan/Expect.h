//===- Expect.h - what the verifiers say when a plan is wrong ---*- C++ -*-===//
#pragma once

#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace pipec::plan {

/// Failure(Exit::Internal) unless `holds`: the planner has a bug.
inline void expect(bool holds, const std::string &message) {
  if (!holds)
    throw Failure(Exit::Internal,
                  "the planner's result does not hold: " + message +
                      "; please report this with the model");
}

/// Equal but for rounding.
inline void expectClose(double claimed, double found, const std::string &what) {
  double scale = std::max({std::abs(claimed), std::abs(found), 1e-12});
  if (!(std::abs(claimed - found) <= 1e-9 * scale))
    expect(false, what + " is " + std::to_string(claimed) +
                      " in the plan and " + std::to_string(found) +
                      " when recomputed");
}

} // namespace pipec::plan
