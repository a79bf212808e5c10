//===- Infeasible.h - say by how much, and what would fit -------*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"
#include "support/Failure.h"

namespace pipec::plan {

/// What would make a plan fit.
struct Remedy {
  enum Kind { Limit, Recompute, Devices, Strategy, Flags };
  Kind kind;
  int64_t amount = 0;     ///< bytes of a limit, or devices
  std::string flags = ""; ///< of a command line that has been tried
  std::string text() const;
};

/// Nothing fits (exit 79): in numbers, so that who knows more than the planner
/// can correct them.
class NoFit : public Failure {
public:
  NoFit(const std::string &shortage, const std::vector<Remedy> &remedies,
        const std::string &hint = "", int64_t limit = 0);
  const std::string shortage; ///< "nothing fits in memory: … needs …"
  const std::vector<Remedy> remedies;
  const std::string hint; ///< what may do besides; may be empty
  const int64_t limit;    ///< what there is; 0: not said
};

/// Throws NoFit: the smallest limit under which this split would fit, and what
/// else would make it fit: recomputation, more devices, another strategy.
[[noreturn]] void throwNoFit(const PlanRequest &request, const StepModel &model,
                             const Split &split);

/// Where a search has come to nothing: the smallest split, if that keeps to the
/// limit (so that a limit that a message names is enough), else throws NoFit as
/// above. Where a named planner cuts it always throws: that has proposed
/// splits that take `proposed` bytes on a device and more, or nothing (0).
/// Throws Failure(Exit::Usage) where the strategy has no stages at all.
Split smallestOrNoFit(const PlanRequest &request, int64_t proposed);

/// "1.5 GiB", "12 MiB" …
std::string formatBytes(int64_t bytes);

} // namespace pipec::plan
