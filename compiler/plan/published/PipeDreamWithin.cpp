//===- PipeDreamWithin.cpp - PipeDream's plans under a limit --------------===//
#include "compiler/plan/published/PipeDreamWithin.h"

#include "compiler/plan/published/EveryPlan.h"
#include "compiler/plan/published/FewestDevices.h"
#include "compiler/plan/published/FlatPlan.h"

#include <algorithm>
#include <cmath>

namespace pipec::published {

namespace {

constexpr double near = 1e-9; ///< of what is as good as equal

/// Brackets the fastest plan, whether there is one of some seconds being quick
/// to tell, until finding it between the two is hardly more.
class Bracket {
public:
  Bracket(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
          double limit, double incumbent, const SearchEffort &effort)
      : search(states, levels, limit, effort.left),
        least(states.seconds.back() * (1 - near) /
              devicesBelow(levels, levels.size())),
        fastest(incumbent), isNear(effort.isNear), isRough(effort.isRough) {}

  PipeDreamPlan solve();
  double effort() const { return search.effort; }

private:
  static constexpr double kNarrow = 1.05; ///< from the least to the most
  static constexpr double kRough = 1.02;  ///< that is near enough
  static constexpr double kGain = 1e-10;
  static constexpr double kFar = 4;

  bool find(double floor, double cap);
  void narrow();

  EverySearch search;
  double least, fastest;
  const bool isNear, isRough;
  PipeDreamPlan best;
};

/// A plan of at most so many seconds, none faster than the floor or it.
bool Bracket::find(double floor, double cap) {
  search.floor = floor;
  search.cap = cap;
  PipeDreamPlan plan = search.levels.size() == 1 ? FlatPlan(search).solve()
                                                 : EveryPlan(search).solve();
  const bool isFound = plan.seconds < fastest;
  if (isFound) {
    fastest = plan.seconds;
    best = std::move(plan);
  } else if (search.effort >= 0) {
    least = cap;
  }
  return isFound;
}

/// In growing steps from the end that is nearer, then in halves.
void Bracket::narrow() {
  double step = kNarrow;
  bool isBetween = false;
  while (search.effort >= 0 && least > 0 &&
         fastest > least * (isRough ? kRough : kNarrow)) {
    double middle = isBetween ? std::sqrt(least * fastest)
                    : isNear  ? fastest / step
                              : least * step;
    if (isNear)
      middle = std::max(middle, least);
    if (middle >= fastest)
      return;
    isBetween |= find(middle, middle) != isNear;
    step = std::min(step * step, kFar);
  }
}

PipeDreamPlan Bracket::solve() {
  narrow();
  if (search.effort >= 0 && (!isRough || best.stages.empty()))
    find(least, fastest * (1 - kGain));
  return best;
}

/// All plans are faster: all work on one machine, everything sent and
/// exchanged, twice, or something where all of it is free.
double slowest(const CutStates &states,
               const std::vector<PipeDreamLevel> &levels) {
  double seconds = states.seconds.back();
  const double cut = *std::max_element(states.cut.begin(), states.cut.end());
  for (const PipeDreamLevel &level : levels)
    seconds += (4 * states.weights.back() + 2 * cut) / level.bandwidth;
  return std::max(2 * seconds, 1e-30);
}

} // namespace

PipeDreamPlan searchWithin(const CutStates &states,
                           const std::vector<PipeDreamLevel> &levels,
                           double limit, double incumbent,
                           SearchEffort &effort) {
  const double most = std::min(incumbent, slowest(states, levels));
  const bool binds = states.kept.back() * devicesBelow(levels, levels.size()) >
                     limit * (1 - near);
  if (levels.size() == 1 && !binds && states.seconds.back() > 0)
    return searchFewest(states, levels[0], most, effort);
  Bracket bracket(states, levels, limit, most, effort);
  PipeDreamPlan plan = bracket.solve();
  effort.isEvery = bracket.effort() >= 0;
  effort.left = std::max(bracket.effort(), 0.0);
  return plan;
}

} // namespace pipec::published
