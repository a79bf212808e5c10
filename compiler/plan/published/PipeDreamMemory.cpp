#include "compiler/plan/published/PipeDreamMemory.h"

#include "compiler/plan/published/PipeDreamSearch.h"

#include <algorithm>
#include <cmath>

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

/// The fewest devices from the first state on with which every stage keeps at
/// most `limit`; more than `devices` where it takes more. A stage of r replicas
/// before n devices keeps its bytes ceil((n + r) / r) times, so that with room
/// for q copies r >= n / (q - 1): fewer devices behind never need more.
static int devicesWithin(const CutStates &states, double limit, int devices) {
  std::vector<int> fewest(states.size(), devices + 1);
  fewest.back() = 0;
  for (size_t k = states.size() - 1; k-- > 0;)
    for (uint32_t j : states.above[k]) {
      const int behind = fewest[j];
      const double bytes = states.kept[j] - states.kept[k];
      if (behind + 1 >= fewest[k] || bytes > limit)
        continue;
      int replicas = 1;
      if (behind > 0 && bytes * (behind + 1) > limit) {
        const double copies = std::floor(limit / bytes);
        if (copies < 2)
          continue;
        replicas = static_cast<int>(std::ceil(behind / (copies - 1)));
      }
      fewest[k] = std::min(fewest[k], behind + replicas);
    }
  return fewest.front();
}

double leastBytes(const CutStates &states, int devices) {
  // One stage on all devices keeps everything once. To the byte from there.
  double fits = std::ceil(states.kept.back()), fails = 0;
  while (fits - fails > 1) {
    const double middle = std::floor(0.5 * (fits + fails));
    (devicesWithin(states, middle, devices) <= devices ? fits : fails) = middle;
  }
  return fits;
}

} // namespace pipec::published
