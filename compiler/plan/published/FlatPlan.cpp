#include "compiler/plan/published/FlatPlan.h"

#include "compiler/plan/published/PipeDreamMemory.h"
#include "compiler/plan/published/PipeDreamRow.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>

namespace pipec::published {

static constexpr double near = 1e-9; ///< of what is as good as equal

FlatPlan::FlatPlan(EverySearch &search)
    : search(search), machines(search.levels[0].machines),
      bandwidth(search.levels[0].bandwidth), fronts(search.states.size()) {}

PipeDreamPlan FlatPlan::solve() {
  const CutStates &states = search.states;
  const size_t end = states.size() - 1;
  fronts[end].push_back({0, 0, 0, 0, 0});
  Phase searching("searching cuts", static_cast<int64_t>(end));
  for (size_t k = end; k-- > 0 && search.effort >= 0;) {
    searching.next();
    offers.assign(static_cast<size_t>(machines) + 1, {none, 0, 0, 0, 0});
    search.effort -= static_cast<double>(machines) / 8;
    for (uint32_t j : states.above[k]) {
      if ((states.seconds[j] - states.seconds[k]) * (1 - near) >
          search.cap * machines)
        break;
      --search.effort;
      if (!fronts[j].empty() && states.kept[j] - states.kept[k] <= search.limit)
        begin(k, j);
    }
    double least = none;
    for (const Entry &entry : offers)
      if (entry.seconds < least) {
        fronts[k].push_back(entry);
        least = entry.seconds;
      }
  }
  return search.effort < 0 || fronts[0].empty() ? PipeDreamPlan() : unwind();
}

/// What stands before a state must be done by the devices that are left, in
/// time and in memory.
bool FlatPlan::leavesEnough(size_t k, int devices) const {
  const int left = machines - devices;
  return left >= 0 &&
         (k == 0 ||
          (search.states.seconds[k] * (1 - near) <= search.cap * left &&
           search.states.kept[k] * (1 - near) <= search.room(left, devices)));
}

/// About as many as time and memory ask for: with room for q copies r >= n /
/// (q - 1) before n devices.
int FlatPlan::leastReplicas(double kept, double busiest, int behind) const {
  const double inTime = search.cap > 0 ? busiest * (1 - near) / search.cap : 0;
  double inMemory = 0;
  if (behind > 0 && kept * (behind + 1) > search.limit) {
    const double copies = std::floor(search.limit / kept);
    inMemory = copies < 2 ? machines + 1.0 : behind / (copies - 1);
  }
  return static_cast<int>(std::clamp(
      std::ceil(std::max(inTime, inMemory) * (1 - near)), 1.0, machines + 1.0));
}

/// Stages from k to j.
void FlatPlan::begin(size_t k, size_t j) {
  const CutStates &states = search.states;
  const double work = states.seconds[j] - states.seconds[k];
  const double kept = states.kept[j] - states.kept[k];
  const double edges =
      k == 0 ? 0
             : 2 *
                   std::max(states.cut[k],
                            j + 1 == states.size() ? 0.0 : states.cut[j]) /
                   bandwidth;
  PipeDreamGroup stage{k, j, 1, {}};
  for (const Entry &behind : fronts[j]) {
    const double least = std::max(behind.seconds, search.floor);
    for (int r = leastReplicas(kept, std::max(work, edges), behind.devices);
         leavesEnough(k, behind.devices + r); ++r) {
      --search.effort;
      if (stageBytes(states, k, j, behind.devices + r, r) > search.limit)
        continue;
      stage.machines = r;
      const double alone =
          stageSeconds(states, search.levels, 0, stage, work, k == 0);
      const double seconds = std::max(alone, least);
      Entry &known = offers[static_cast<size_t>(behind.devices + r)];
      if (seconds <= search.cap && seconds < known.seconds)
        known = {seconds, behind.devices + r, r, static_cast<uint32_t>(j),
                 static_cast<uint32_t>(&behind - fronts[j].data())};
      if (alone <= least) // more of them are no gain
        break;
    }
  }
}

PipeDreamPlan FlatPlan::unwind() const {
  PipeDreamPlan plan;
  size_t k = 0;
  for (Entry entry = fronts[0].back(); entry.replicas > 0;
       entry = fronts[k][entry.behind]) {
    plan.groups.push_back({k, entry.end, entry.replicas, {}});
    k = entry.end;
  }
  flatten(plan, search.levels);
  plan.seconds = planSeconds(search.states, search.levels, plan);
  return plan;
}

} // namespace pipec::published
