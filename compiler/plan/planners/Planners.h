//===- Planners.h - named ways to choose a split ----------------*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"

#include <span>
#include <string_view>

namespace pipec::plan {

/// What a planner has to offer: splits, best first, and a word on the second.
struct Proposal {
  std::vector<Split> splits;
  std::string runnerUp;
};

struct PlannerRow {
  const char *name;
  Proposal (*propose)(const PlanRequest &, const StepModel &);
  const char *summary;
  const char *source;
};

/// All rows of Planners.def.
std::span<const PlannerRow> planners();
/// Throws Failure(Exit::Usage) listing the names there are.
const PlannerRow &planner(std::string_view name);

#define PLANNER(NAME, FUNCTION, SUMMARY, SOURCE)                               \
  Proposal FUNCTION(const PlanRequest &request, const StepModel &model);
#include "compiler/plan/planners/Planners.def"

/// \name Common to several planners
/// @{
/// Throws Failure(Exit::Usage) when the request fixes what `name` chooses.
void expectFreeShape(const PlanRequest &request, const char *name);
/// A chain of at most `most` layers: first nodes, and each layer's cost.
struct Layers {
  std::vector<size_t> starts;
  std::vector<StageCost> costs;
  size_t count() const { return costs.size(); }
};
Layers layersOf(const PlanRequest &request, const StepModel &model,
                size_t most);
/// @}

} // namespace pipec::plan
