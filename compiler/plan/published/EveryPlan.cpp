#include "compiler/plan/published/EveryPlan.h"

#include "compiler/plan/published/PipeDreamRow.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace pipec::published {

static constexpr double near = 1e-9; ///< of what is as good as equal

EveryPlan::EveryPlan(EverySearch &search)
    : search(search), outer(search.levels.back()),
      each(devicesBelow(search.levels, search.levels.size() - 1)),
      inAStage(search.levels[search.levels.size() - 2].machines),
      components(search),
      offers(search.states.size() * (static_cast<size_t>(outer.machines) + 1)),
      fronts(search.states.size()) {}

PipeDreamPlan EveryPlan::solve() {
  const size_t end = search.states.size() - 1;
  const double cap = search.cap;
  fronts[end].push_back({0, 0, 0, 0, 0, 0, 0});
  PipeDreamPlan plan;
  Phase searching("searching cuts", static_cast<int64_t>(end));
  for (size_t i = end; i > 0 && search.effort >= 0; --i) {
    searching.next();
    if (i < end)
      collect(i);
    expand(i);
    if (!fronts[0].empty() && fronts[0][0].seconds <= search.floor)
      break;
  }
  if (search.effort < 0 || fronts[0].empty())
    return plan;
  const double left = std::exchange(search.effort, none);
  const double floor = std::exchange(search.floor, 0);
  search.cap = cap;
  plan.groups = stages(fronts[0][0]);
  if (search.effort < 0) { // the floor keeps it to what it was found with
    search.effort = none;
    search.floor = floor;
    components.uncap();
    plan.groups = stages(fronts[0][0]);
  }
  search.effort = left;
  flatten(plan, search.levels);
  plan.seconds = planSeconds(search.states, search.levels, plan);
  return plan;
}

/// What stands before a state must be done by the outermost machines that are
/// left, in time and in memory.
bool EveryPlan::leavesEnough(size_t k, int machines, int devices) const {
  const int left = (outer.machines - machines) * each;
  return search.states.seconds[k] * (1 - near) <= search.cap * left &&
         search.states.kept[k] * (1 - near) <= search.room(left, devices);
}

/// Of the first state the fastest entry is all that counts.
void EveryPlan::offer(size_t k, const Entry &entry) {
  std::vector<Entry> &known = k == 0 ? fronts[0] : offered(k, entry.machines);
  if (k == 0) {
    if (known.empty() || entry.seconds < known[0].seconds)
      known.assign(1, entry);
    search.cap = std::min(search.cap, entry.seconds);
    return;
  }
  auto at = std::find_if(known.begin(), known.end(), [&](const Entry &other) {
    return other.devices > entry.devices;
  });
  search.effort -= static_cast<double>(at - known.begin()) + 1;
  if (at != known.begin() && std::prev(at)->seconds <= entry.seconds)
    return;
  if (at != known.begin() && std::prev(at)->devices == entry.devices)
    --at;
  auto last = at;
  while (last != known.end() && last->seconds >= entry.seconds)
    ++last;
  if (at == last) {
    known.insert(at, entry);
    return;
  }
  *at = entry;
  known.erase(at + 1, last);
}

/// What no entry with as few machines and devices is as fast as, by devices.
void EveryPlan::collect(size_t k) {
  std::vector<Entry> &front = fronts[k];
  least.assign(static_cast<size_t>(outer.machines * each) + 1, none);
  for (int m = 1; m < outer.machines; ++m) {
    for (const Entry &entry : offered(k, m)) {
      if (least[static_cast<size_t>(entry.devices)] <= entry.seconds)
        continue;
      front.push_back(entry);
      for (size_t d = static_cast<size_t>(entry.devices);
           d < least.size() && least[d] > entry.seconds; ++d)
        least[d] = entry.seconds;
    }
    std::vector<Entry>().swap(offered(k, m));
  }
  std::sort(front.begin(), front.end(), [](const Entry &a, const Entry &b) {
    return std::tie(a.devices, a.machines) < std::tie(b.devices, b.machines);
  });
}

/// Stages that end at a state.
void EveryPlan::expand(size_t i) {
  const std::vector<Entry> &front = fronts[i];
  const Entry *end = front.data() + front.size();
  for (const Entry *at = front.data(); at != end;) {
    Equal equal{at, at};
    while (equal.end != end && equal.end->devices == at->devices)
      ++equal.end;
    for (int used = 1; at->machines + used <= outer.machines; ++used)
      if (search.effort >= 0)
        beginStages(i, equal, used);
    at = equal.end;
  }
}

AskedComponents EveryPlan::asked(size_t end, int devices, int used) const {
  const double exchange = exchangePerByte(outer, 1, used);
  return {end,         used,     devices,
          exchange,    exchange, exchangePerByte(outer, inAStage, used),
          search.floor};
}

void EveryPlan::beginStages(size_t i, Equal behind, int used) {
  const CutStates &states = search.states;
  AskedComponents all = asked(i, behind.devices(), used);
  all.reach = search.cap * each *
              (outer.machines - behind.begin->machines - used) * (1 + near);
  const double most = search.cap * outer.bandwidth * used * (1 + near);
  if (i + 1 < states.size() && 2 * states.cut[i] > most) {
    if (states.seconds[i] * (1 - near) > search.cap * each * used)
      return; // the first stage alone does not pay for what it sends
    all.reach = 0;
  }
  components.solve(all);
  PipeDreamGroup stage{0, i, used, {}};
  for (size_t k = i; k-- > components.lowestStart();) {
    if (components.best(k, each) == none || (k > 0 && 2 * states.cut[k] > most))
      continue;
    stage.before = k;
    search.effort -= each;
    double slower = none;
    for (int u = 1; u <= each; ++u) {
      const double compute = components.best(k, u);
      if (compute == none || compute >= slower)
        continue;
      slower = compute;
      const double seconds =
          std::max(search.floor,
                   stageSeconds(states, search.levels, search.levels.size() - 1,
                                stage, compute, k == 0));
      if (seconds > search.cap)
        continue;
      const int devices = behind.devices() + used * u;
      bool isGain = false;
      for (const Entry *at = behind.begin; at != behind.end; ++at) {
        const int machines = at->machines + used;
        if (machines > outer.machines ||
            (k > 0 && !leavesEnough(k, machines, devices)))
          break;
        if (at->seconds > search.cap)
          continue;
        isGain |= seconds > std::max(at->seconds, search.floor);
        offer(k, {std::max(seconds, at->seconds), machines, devices,
                  static_cast<uint32_t>(i), used, u,
                  static_cast<uint32_t>(at - fronts[i].data())});
      }
      if (!isGain) // more devices are none
        break;
    }
  }
}

std::vector<PipeDreamGroup> EveryPlan::stages(const Entry &first) {
  std::vector<PipeDreamGroup> stages;
  size_t k = 0;
  for (Entry entry = first; entry.used > 0; entry = fronts[k][entry.behind]) {
    const Entry &behind = fronts[entry.end][entry.behind];
    PipeDreamGroup stage{k, entry.end, entry.used, {}};
    stage.within = components.stages(
        asked(entry.end, behind.devices, entry.used), k, entry.inEach);
    stages.push_back(std::move(stage));
    k = entry.end;
  }
  return stages;
}

} // namespace pipec::published
