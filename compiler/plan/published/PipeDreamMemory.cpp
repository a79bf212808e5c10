#include "compiler/plan/published/PipeDreamMemory.h"

#include "compiler/plan/published/PipeDreamSearch.h"

#include <algorithm>
#include <limits>

namespace pipec::published {

double mostBytes(const CutStates &states, const PipeDreamPlan &plan) {
  int devices = 0;
  double most = 0;
  for (size_t s = plan.stages.size(); s-- > 0;) {
    const PipeDreamStage &stage = plan.stages[s];
    devices += stage.replicas;
    most = std::max(most, stageBytes(states, stage.before, stage.after, devices,
                                     stage.replicas));
  }
  return most;
}

double leastBytes(const CutStates &states, int devices) {
  // Of what follows a state, on so many devices, from the last state to the
  // first.
  const size_t width = static_cast<size_t>(devices) + 1;
  const double none = std::numeric_limits<double>::infinity();
  std::vector<double> least(states.size() * width, none);
  least[(states.size() - 1) * width] = 0;
  for (size_t k = states.size() - 1; k-- > 0;)
    for (uint32_t j : states.above[k])
      for (int n = 1; n <= devices; ++n) {
        double &mine = least[k * width + static_cast<size_t>(n)];
        if (states.kept[j] - states.kept[k] >= mine)
          continue;
        for (int r = 1; r <= n; ++r)
          mine = std::min(
              mine, std::max(stageBytes(states, k, j, n, r),
                             least[j * width + static_cast<size_t>(n - r)]));
      }
  return *std::min_element(least.begin() + 1, least.begin() + devices + 1);
}

} // namespace pipec::published
