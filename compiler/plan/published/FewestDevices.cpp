#include "compiler/plan/published/FewestDevices.h"

#include "compiler/plan/published/PipeDreamRow.h"

#include <algorithm>
#include <cmath>

namespace pipec::published {

namespace {

constexpr double near = 1e-9; ///< of what is as good as equal
constexpr double kPair = 3;   ///< entries that one takes as long as

class Fewest {
public:
  Fewest(const CutStates &states, const PipeDreamLevel &level, double incumbent,
         SearchEffort &effort)
      : states(states), levels{level}, effort(effort),
        low(states.seconds.back() / level.machines * (1 - near)),
        high(incumbent), fewest(states.size()), from(states.size()) {}

  PipeDreamPlan run();

private:
  struct From {
    uint32_t end;
    int replicas;
  };
  /// More than there are.
  int none() const { return levels[0].machines + 1; }
  double below() const { return high * (1 - 1e-10); }
  bool tryFor(double seconds);
  bool reaches(double seconds);
  void begin(size_t k, double seconds);
  int replicasFor(size_t k, size_t j, int least, double seconds) const;
  double edges(size_t k, size_t j) const;
  PipeDreamPlan plan() const;

  const CutStates &states;
  const std::vector<PipeDreamLevel> levels;
  SearchEffort &effort;
  double low, high; ///< nothing is below; the best plan that is known
  PipeDreamPlan best;
  std::vector<int> fewest; ///< devices from a state to the end
  std::vector<From> from;  ///< the first stage of these
};

/// Seconds on one device that a stage receives or sends, the longer of both.
double Fewest::edges(size_t k, size_t j) const {
  if (k == 0)
    return 0;
  const double sent = j + 1 == states.size() ? 0 : states.cut[j];
  return 2 * std::max(states.cut[k], sent) / levels[0].bandwidth;
}

/// The least replicas, at least so many, on which the stage takes no longer.
/// T r^2 - (C + a) r + a >= 0 where a byte's exchange makes it a second longer
/// on two: either few are enough, or as many as the larger root.
int Fewest::replicasFor(size_t k, size_t j, int least, double seconds) const {
  const double work = states.seconds[j] - states.seconds[k];
  const double exchange =
      4 * (states.weights[j] - states.weights[k]) / levels[0].bandwidth;
  const double moved = edges(k, j);
  auto isEnough = [&](int r) {
    return std::max(work + exchange * (r - 1) / r, moved) / r <= seconds;
  };
  if (isEnough(least))
    return least;
  const double both = work + exchange;
  const double root =
      std::sqrt(std::max(0.0, both * both - 4 * exchange * seconds));
  const double larger = (both + root) / (2 * seconds) * (1 - near);
  if (!(larger < none()))
    return none();
  int r = std::max(least, static_cast<int>(std::ceil(larger)));
  while (r < none() && !isEnough(r))
    ++r;
  return r;
}

void Fewest::begin(size_t k, double seconds) {
  const double total = states.seconds.back();
  const int bound = static_cast<int>(
      std::ceil((total - states.seconds[k]) / seconds * (1 - near)));
  // What stands before must be done as well.
  int best =
      std::min(none(), levels[0].machines + 1 -
                           static_cast<int>(std::ceil(states.seconds[k] /
                                                      seconds * (1 - near))));
  From first{0, 0};
  for (uint32_t j : states.above[k]) {
    effort.left -= kPair;
    const double alone =
        (states.seconds[j] - states.seconds[k]) / seconds * (1 - near);
    if (alone >= best || best <= bound)
      break;
    const double least =
        std::max({1.0, alone, edges(k, j) / seconds * (1 - near)});
    if (least + fewest[j] >= best)
      continue;
    const int r =
        replicasFor(k, j, static_cast<int>(std::ceil(least)), seconds);
    if (r + fewest[j] < best) {
      best = r + fewest[j];
      first = {j, r};
    }
  }
  fewest[k] = first.replicas > 0 ? best : none();
  from[k] = first;
}

bool Fewest::reaches(double seconds) {
  const size_t end = states.size() - 1;
  fewest[end] = 0;
  for (size_t k = end; k-- > 0 && effort.left >= 0;)
    begin(k, seconds);
  return effort.left >= 0 && fewest[0] <= levels[0].machines;
}

PipeDreamPlan Fewest::plan() const {
  PipeDreamPlan plan;
  for (size_t k = 0; k + 1 < states.size(); k = from[k].end)
    plan.groups.push_back({k, from[k].end, from[k].replicas, {}});
  flatten(plan, levels);
  plan.seconds = planSeconds(states, levels, plan);
  return plan;
}

bool Fewest::tryFor(double seconds) {
  if (!reaches(seconds)) {
    if (effort.left >= 0)
      low = seconds;
    return false;
  }
  PipeDreamPlan found = plan();
  if (found.seconds >= high) { // by rounding
    low = seconds;
    return false;
  }
  high = found.seconds;
  best = std::move(found);
  return true;
}

/// Near a plan that is known first just below it, and in growing steps from
/// there on; else from what nothing is below. Then between the two.
PipeDreamPlan Fewest::run() {
  constexpr double kStep = 1.005, kFar = 1.05, kRough = 1.02, kNear = 1.002;
  bool wasFound = false; // in the last search
  if (effort.isNear) {
    if (!(wasFound = tryFor(below())) && effort.left >= 0)
      low = high;
    for (double step = kStep; wasFound && low < below(); step *= step)
      wasFound = tryFor(std::max(low, high / step));
  } else {
    for (double step = kFar; !wasFound && effort.left >= 0 && low < below();
         step *= step)
      wasFound = tryFor(std::min(low * step, below()));
  }
  while (effort.left >= 0 && low < below() &&
         !(effort.isRough && high < low * kRough && !best.stages.empty())) {
    const bool isLast = high < low * kNear && !wasFound;
    wasFound =
        tryFor(isLast ? below() : std::min(std::sqrt(low * high), below()));
    if (isLast && !wasFound)
      break;
  }
  effort.isEvery = effort.left >= 0;
  effort.left = std::max(effort.left, 0.0);
  return best;
}

} // namespace

PipeDreamPlan searchFewest(const CutStates &states, const PipeDreamLevel &level,
                           double incumbent, SearchEffort &effort) {
  return Fewest(states, level, incumbent, effort).run();
}

} // namespace pipec::published
