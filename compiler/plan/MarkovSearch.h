//===- MarkovSearch.h - random walks under the simulator --------*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"

namespace pipec::plan {

/// Metropolis-Hastings over an operator's stage and a stage's replicas: a
/// proposal moves a run of operators at a stage's border to its neighbour,
/// splits or joins stages, or moves a replica from one stage to another; every
/// one is simulated. A fixed generator and number of proposals make it
/// repeatable.
class MarkovSearch {
public:
  MarkovSearch(const PlanRequest &request, const StepModel &model);

  /// Walks from a split (which need not fit); `warmth` is the relative slowdown
  /// that is accepted with probability 1/e.
  void walk(Split from, long proposals, double warmth);

  Split best;
  double bestSeconds;

private:
  uint64_t random() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  size_t below(size_t n) { return static_cast<size_t>((random() >> 20) % n); }
  double unit() { return static_cast<double>(random() >> 11) * 0x1p-53; }
  bool propose(Split &split);
  bool moveBorder(Split &split);
  bool splitStage(Split &split);

  const PlanRequest &request;
  const StepModel &model;
  const std::vector<size_t> places;
  const bool shapes; ///< replicas and the number of stages may change
  uint64_t state = 0x9e3779b97f4a7c15ull;
};

} // namespace pipec::plan
