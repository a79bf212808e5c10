//===- SamplePlan.h - a plan that was never compiled ------------*- C++ -*-===//
#pragma once

#include "runtime/program/Plan.h"

namespace pipec {

struct SampleOptions {
  int stages = 4;
  int microbatches = 8;
  int replicas = 1;             ///< of every stage
  bool stream = false;          ///< pipedream instead of 1f1b
  double forwardSeconds = 1e-3; ///< of stage 0; stage s takes (1 + s/10) times
};

/// A valid plan of `stages` stages, each with one trained weight of 256
/// elements and its own activation; stage 0 also has a frozen tensor named
/// "mask". Memory and slots are as the compiler would state them.
plan::Plan samplePlan(const SampleOptions &options = {});

} // namespace pipec
