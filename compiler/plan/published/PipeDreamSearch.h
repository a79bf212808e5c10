//===- PipeDreamSearch.h - PipeDream's dynamic program ----------*- C++ -*-===//
//
// The cost model of its published optimizer (activation traffic included),
// level by level. With cut states i < k < j, M machines and bandwidth b at a
// level and n machines in a component below:
//   A[i][j][m] = (C + 4(m-1)W/(bm)/n)/m              one stage, or the best of
//   max(A[i][k][m-m'], (C + 4(m'-1)W/(bm'))/m', 2 cut(k)/(bm'), 2 cut(j)/(bm'))
// where C is the compute time between the states, or A[..][M] of the level
// below, and W their weights; the last term falls away at the end of the model.
// There may be any number of levels, and machines may stay idle (its
// --use_fewer_machines). Cut bytes are exact (the published program counts some
// outputs that stay inside, so its figures are never lower for the same plan).
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/CutStates.h"

#include <functional>
#include <limits>

namespace pipec::published {

/// Machines in a component, and bytes/s between them; innermost level first.
struct PipeDreamLevel {
  int machines = 1;
  double bandwidth = 0;
};

/// One stage of the flattened plan.
struct PipeDreamStage {
  size_t before = 0, after = 0; ///< cut states
  int replicas = 1;
  std::vector<int> devices;
};

/// A stage of some level on so many machines of it, each of which runs the
/// stages of the level below; none are below the innermost level.
struct PipeDreamGroup {
  size_t before = 0, after = 0; ///< cut states
  int machines = 1;
  std::vector<PipeDreamGroup> within;
};

struct PipeDreamPlan {
  /// Per minibatch, the slowest stage; infinite where there is no plan.
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<PipeDreamStage> stages;
  /// The outermost level's, of which the stages follow.
  std::vector<PipeDreamGroup> groups;
};

/// Writes the plan's stages from its groups; devices are numbered depth first.
void flatten(PipeDreamPlan &plan, const std::vector<PipeDreamLevel> &levels);

/// The levels that count, innermost first: those of one machine at either end
/// say nothing; one in between, or several, makes the level above divide its
/// first exchange by one.
std::vector<PipeDreamLevel>
levelsOf(const std::vector<PipeDreamLevel> &outermostFirst);

/// Devices in one machine of a level; of all levels together at their number.
int devicesBelow(const std::vector<PipeDreamLevel> &levels, size_t level);

/// What a search may still do, in entries and stages that it tries (1e8 of them
/// take about a second); whether it looked at all plans of its states; whether
/// what it is to stay below is near its result, and whether a plan near the
/// best is enough.
struct SearchEffort {
  double left = 1e8;
  bool isEvery = true;
  bool isNear = false;
  bool isRough = false;
};

/// The published search space and objective. With a limit above 0 the fastest
/// plan of which every stage keeps at most so many bytes on a device
/// (PipeDreamMemory.h). Infinite seconds where there is none or none of at most
/// `incumbent`. An effort that is spent before (`isEvery` false) leaves what
/// was found until then: without a limit over half of the cuts, if anything.
/// Without a limit and an effort it comes to its end.
PipeDreamPlan
searchPipeDream(const CutStates &states,
                const std::vector<PipeDreamLevel> &levels, double limit = 0,
                double incumbent = std::numeric_limits<double>::infinity(),
                SearchEffort *effort = nullptr);

/// A search over at most `few` states at a time: spread over all, then next to
/// the cuts of the best plan so far, `best` to begin with, and over twice as
/// many in the end, until nothing is gained. `search` gives plans below its
/// second argument or none.
PipeDreamPlan searchThinned(
    const CutStates &states, size_t few, PipeDreamPlan best,
    const std::function<PipeDreamPlan(const CutStates &, double)> &search);

/// A search over more and more states until it is over all or the effort is
/// spent, and then next to the cuts of the best plan so far, `best` to begin
/// with. `search` as above, and it is told of what is left to it.
PipeDreamPlan
searchGrowing(const CutStates &states, PipeDreamPlan best, SearchEffort &effort,
              const std::function<PipeDreamPlan(const CutStates &, double,
                                                SearchEffort &)> &search);

/// From states that were chosen back to those that they were chosen from.
void renumber(PipeDreamPlan &plan, const std::vector<size_t> &chosen);

/// Data parallelism over all devices under the same model.
double dataParallelSeconds(const CutStates &states,
                           const std::vector<PipeDreamLevel> &levels);

} // namespace pipec::published
