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
  std::vector<size_t> order(states.size());
  for (size_t s = 0; s < order.size(); ++s)
    order[s] = s;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return states.seconds[a] < states.seconds[b];
  });
  std::vector<size_t> place(states.size());
  for (size_t i = 0; i < order.size(); ++i)
    place[order[i]] = i;
  for (size_t far = 1; far < order.size() && chosen.size() < most; ++far)
    for (size_t cut : cuts) {
      if (place[cut] >= far && chosen.size() < most)
        chosen.insert(order[place[cut] - far]);
      if (place[cut] + far < order.size() && chosen.size() < most)
        chosen.insert(order[place[cut] + far]);
    }
  return {chosen.begin(), chosen.end()};
}

/// Back to the states that these were chosen from.
void renumber(PipeDreamPlan &plan, const std::vector<size_t> &chosen) {
  auto back = [&](auto &stage) {
    stage.before = chosen[stage.before], stage.after = chosen[stage.after];
  };
  for (PipeDreamStage &stage : plan.stages)
    back(stage);
  for (PipeDreamPlan::Outer &group : plan.outer) {
    back(group);
    for (PipeDreamStage &stage : group.inner)
      back(stage);
  }
}

} // namespace

PipeDreamPlan searchThinned(const CutStates &states,
                            const std::vector<PipeDreamLevel> &levels,
                            double limit, size_t few) {
  constexpr int kMostRounds = 8;
  constexpr double kLeastGain = 1e-3;
  if (states.size() <= few)
    return searchPipeDream(states, levels, limit);
  PipeDreamPlan best;
  best.seconds = std::numeric_limits<double>::infinity();
  std::vector<size_t> chosen = spread(states, few);
  const size_t most = 2 * few; // with a plan that is nearly as good it is quick
  for (int round = 0; round < kMostRounds; ++round) {
    PipeDreamPlan plan =
        searchPipeDream(states.only(chosen), levels, limit, best.seconds);
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
