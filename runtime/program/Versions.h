//===- Versions.h - which weights a task reads ------------------*- C++ -*-===//
//
// The strategy's phi and beta: the version that the forward and the backward of
// a stage's round j read, where version v is the weights after v updates. The
// executor, the oracle and the plan's checks ask here and nowhere else.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/program/Plan.h"

#include <algorithm>
#include <utility>

namespace pipec::plan {

/// `round`: the stage's updates before the one this microbatch goes into. In a
/// step program that is the step, in a stream microbatch / replicas.
inline int64_t forwardVersion(const Plan &plan, const Stage &stage,
                              int64_t round) {
  if (plan.strategy.versions == "latest")
    return round;
  return std::max<int64_t>(0, round - stage.warmup);
}

/// Both rules so far keep the forward's weights for the backward.
inline int64_t backwardVersion(const Plan &plan, const Stage &stage,
                               int64_t round) {
  return forwardVersion(plan, stage, round);
}

/// Updates a stage has made after `steps` steps.
inline int64_t updatesAfter(const Plan &plan, const Stage &stage,
                            int64_t steps) {
  if (plan.strategy.update == "step")
    return steps;
  const auto replicas = static_cast<int64_t>(stage.ranks.size());
  return (steps + replicas - 1) / replicas;
}

/// The oldest and the newest version that training goes on from after `steps`
/// steps.
inline std::pair<int64_t, int64_t>
versionsAfter(const Plan &plan, const Stage &stage, int64_t steps) {
  const int64_t newest = updatesAfter(plan, stage, steps);
  if (plan.strategy.update != "round")
    return {newest, newest};
  return {std::max<int64_t>(0, newest - stage.versions + 1), newest};
}

} // namespace pipec::plan
