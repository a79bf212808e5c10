//===- OneStrategy.h - what one strategy asks of the planner ----*- C++ -*-===//
//
// From a row of Strategies.def and the options to a request: for who asks for
// the strategy by name as for who compares all.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/driver/Planning.h"
#include "compiler/plan/StrategyFacts.h"

#include <string>
#include <vector>

namespace pipec {

bool areReplicated(const std::vector<int> &replicas);

bool isSliced(const strategy::StrategyRow &row);

/// Whether its order depends on what the stages cost.
bool isSearched(const strategy::StrategyRow &row);

/// The schedules for which the model is cut, where the order is then searched
/// for the stages that come out.
std::vector<std::string> cutFor(const strategy::StrategyRow &row);

/// The planner's facts of a strategy that trains with `schedule`. On GPUs no
/// update is taken back: every step ends with a barrier.
plan::StrategyFacts factsOf(const strategy::StrategyRow &row,
                            const std::string &schedule,
                            const plan::PlanRequest &request, int slices = 1);

/// --recompute, of who tries no more than that.
plan::Recompute recomputeAsked(const CompileOptions &options);

/// Bytes a device for a plan's arena, 0 for all of it. A GPU's context, code
/// and libraries need some as well.
int64_t limitAsked(const CompileOptions &options,
                   const plan::Topology &topology);

/// The limit that the planner is given.
void setLimit(const CompileOptions &options, const ModelFacts &facts,
              plan::PlanRequest &request);

/// What is asked of the planner under one strategy, but for its shape.
Decision askFor(const strategy::StrategyRow &row, const CompileOptions &options,
                const plan::CostGraph &graph, const ModelFacts &facts,
                plan::Recompute recompute);

/// How many stages, and whether of several copies. Throws Failure(Usage,
/// BadPlan).
void chooseShape(const CompileOptions &options, Decision &decision);

/// Whether so many stages are to share devices while others have none, which
/// nobody means who says how many stages there are; copies fill all of them.
bool crowdsStages(const plan::PlanRequest &request);

/// Before a plan is searched for: where it may compute activations again it is
/// to be known what that works in.
void findRepeats(const CompileOptions &options, const ModelFacts &facts,
                 plan::Recompute recompute, plan::CostGraph &graph);

/// The fastest order for the stages' costs, over the ways to cut. Throws as
/// plan::cutAndOrder().
Decision decideSearched(const CompileOptions &options, const Decision &asked);

} // namespace pipec
