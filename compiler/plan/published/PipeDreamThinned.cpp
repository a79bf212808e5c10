#include "compiler/plan/published/PipeDreamSearch.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

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

namespace {

/// Of searches over more and more states.
class Growing {
public:
  using Search =
      std::function<PipeDreamPlan(const CutStates &, double, SearchEffort &)>;
  Growing(const CutStates &states, PipeDreamPlan best, SearchEffort &effort,
          const Search &search)
      : best(std::move(best)), states(states), effort(effort), search(search) {}

  /// Over these states with so much of the effort that is left.
  void look(const std::vector<size_t> &chosen, double share, bool isRough) {
    SearchEffort part{share * effort.left, true, effort.isNear, isRough};
    const double given = part.left;
    PipeDreamPlan plan = search(states.only(chosen), best.seconds, part);
    if (plan.seconds < best.seconds) {
      renumber(plan, chosen);
      best = std::move(plan);
    }
    effort = {effort.left - (given - part.left), part.isEvery,
              std::isfinite(best.seconds)};
  }

  /// Some of all, and the best plan's cuts.
  std::vector<size_t> some(size_t most) const {
    std::vector<size_t> chosen = spread(states, most);
    for (const PipeDreamStage &stage : best.stages)
      chosen.push_back(stage.after);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    return chosen;
  }

  PipeDreamPlan best;

private:
  const CutStates &states;
  SearchEffort &effort;
  const Search &search;
};

} // namespace

PipeDreamPlan
searchGrowing(const CutStates &states, PipeDreamPlan best, SearchEffort &effort,
              const std::function<PipeDreamPlan(const CutStates &, double,
                                                SearchEffort &)> &search) {
  constexpr size_t kFirst = 64;
  constexpr double kShare = 0.75;
  constexpr int kMostRounds = 24;
  constexpr double kLeastGain = 1e-3;
  Growing growing(states, std::move(best), effort, search);
  for (size_t most = kFirst; effort.isEvery; most *= 2) {
    const std::vector<size_t> chosen = growing.some(most);
    if (3 * chosen.size() > 2 * states.size()) {
      growing.look(growing.some(states.size()), 1, false);
      return growing.best;
    }
    growing.look(chosen, kShare, true);
    const bool isEvery = effort.isEvery;
    for (int round = 0; round < kMostRounds && !growing.best.stages.empty();
         ++round) {
      const double before = growing.best.seconds;
      growing.look(nearCuts(states, growing.best, most), kShare, false);
      if (growing.best.seconds > before * (1 - kLeastGain))
        break;
    }
    effort.isEvery = isEvery;
  }
  return growing.best;
}

} // namespace pipec::published
