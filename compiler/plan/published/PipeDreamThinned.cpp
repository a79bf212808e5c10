#include "compiler/plan/published/PipeDreamSearch.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace pipec::published {

namespace {

/// The plan's cuts, and the states that are next to them in work, as many for
/// each cut.
std::vector<size_t> nearCuts(const CutStates &states, const PipeDreamPlan &plan,
                             size_t most) {
  std::set<size_t> chosen{0, states.size() - 1};
  for (const PipeDreamStage &stage : plan.stages)
    chosen.insert(stage.after);
  const std::set<size_t> cuts = chosen;
  for (size_t far = 1; far < states.size() && chosen.size() < most; ++far)
    for (size_t cut : cuts) {
      if (cut >= far && chosen.size() < most)
        chosen.insert(cut - far);
      if (cut + far < states.size() && chosen.size() < most)
        chosen.insert(cut + far);
    }
  return {chosen.begin(), chosen.end()};
}

} // namespace

void renumber(PipeDreamPlan &plan, const std::vector<size_t> &chosen) {
  auto back = [&](auto &stage) {
    stage.before = chosen[stage.before], stage.after = chosen[stage.after];
  };
  auto backAll = [&](auto &self, std::vector<PipeDreamGroup> &groups) -> void {
    for (PipeDreamGroup &group : groups) {
      back(group);
      self(self, group.within);
    }
  };
  for (PipeDreamStage &stage : plan.stages)
    back(stage);
  backAll(backAll, plan.groups);
}

PipeDreamPlan searchThinned(
    const CutStates &states, size_t few, PipeDreamPlan best,
    const std::function<PipeDreamPlan(const CutStates &, double)> &search) {
  constexpr int kMostRounds = 8;
  constexpr double kLeastGain = 1e-3;
  if (states.size() <= few) {
    PipeDreamPlan plan = search(states, best.seconds);
    return plan.seconds < best.seconds ? plan : best;
  }
  std::vector<size_t> chosen = spread(states, few);
  for (const PipeDreamStage &stage : best.stages)
    chosen.push_back(stage.after);
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  // With a plan that is nearly as good it is quick, unless that is nearly all.
  const size_t most = 2 * few < states.size() ? 2 * few : few;
  for (int round = 0; round < kMostRounds; ++round) {
    PipeDreamPlan plan = search(states.only(chosen), best.seconds);
    const bool gained = plan.seconds < best.seconds * (1 - kLeastGain);
    if (plan.seconds < best.seconds) {
      renumber(plan, chosen);
      best = std::move(plan);
    }
    if (!gained && few == most)
      break;
    few = gained ? few : most;
    chosen = nearCuts(states, best, few);
  }
  return best;
}

} // namespace pipec::published
