//===- StepPhases.h - steps as phases ---------------------------*- C++ -*-===//
#pragma once

#include "support/Phase.h"

#include <cmath>
#include <cstdio>
#include <optional>

namespace pipec {

/// "training: step 57 of 100, loss 2.5369": what one rank says for all.
class StepPhases {
public:
  /// `steps`: 0 where nobody knows how many there are.
  StepPhases(bool speaks, const char *what, int64_t steps) : steps(steps) {
    if (speaks)
      all.emplace(what);
  }

  /// Number `step`, from 1, and the loss it had, if that is known.
  void at(int64_t step, double loss = std::nan("")) {
    if (!all)
      return;
    if (!one)
      one.emplace("step", steps);
    one->at(step);
    if (std::isnan(loss))
      return;
    char text[40];
    std::snprintf(text, sizeof text, "loss %.6g", loss);
    last.emplace(text);
  }

private:
  const int64_t steps;
  std::optional<Phase> all, one, last;
};

} // namespace pipec
