//===- SmallestPlan.h - the plan that takes the least memory ----*- C++ -*-===//
#pragma once

#include "compiler/driver/WithinLimit.h"
#include "compiler/plan/Infeasible.h"

#include <limits>
#include <optional>

namespace pipec {

/// What takes part in `auto` and keeps little: in this order from the fastest
/// to the smallest, activations of as many microbatches as there are stages, of
/// half and a third as many, and of one. No property of a row of
/// Strategies.def says so: of a new row somebody has to. A name that goes away
/// there goes away here (WithinLimitTest looks).
inline constexpr const char *kFrugalStrategies[] = {"1f1b", "v-half", "v-min",
                                                    "naive"};

/// The limit that a refusal names, or the most where it names none.
int64_t needOf(const plan::NoFit &failure);

struct Smallest {
  CompileOptions options; ///< of its trial: the limit is what it was given
  int64_t bytes = 0;      ///< -1: the model is too large to be tried

  /// Bytes a device that it keeps to; of a model too large to be tried by the
  /// planner's word.
  int64_t enough() const;

  /// What makes the same plan where the options leave it so much memory.
  CompileOptions under(const CompileOptions &asked, int64_t limit) const;
};

/// The smallest plan that is found under the options' strategy (of `auto` those
/// that keep little), whatever their limit: what is tried depends on what the
/// planner says and on no limit, so that everyone whom it does not fit is told
/// the same, and everyone else can have it. Nothing where there are no plans.
/// Who looks for one that is `faster` than so many seconds is spared what is
/// smaller than a plan that is not: less memory does not make it faster.
std::optional<Smallest>
smallestPlan(const CompileOptions &options, const Trial &trial,
             double faster = std::numeric_limits<double>::infinity());

} // namespace pipec
