//===- PipeDreamWithin.cpp - PipeDream's plans under a limit --------------===//
//
// What a stage keeps depends on the devices behind it. So one level is solved
// from the end of the model on: an entry is the best time from a state to the
// end on exactly so many machines, whatever stands before it.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/published/PipeDreamWithin.h"

#include "compiler/plan/published/ComponentsWithin.h"
#include "compiler/plan/published/EveryPlan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::published {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// Of one level: best seconds from a state to the end.
class Suffixes {
public:
  Suffixes(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
           double cap)
      : states(states), levels(levels), cap(cap),
        width(static_cast<size_t>(levels[0].machines) + 1),
        value(states.size() * width, inf), origin(states.size() * width) {
    value[index(states.size() - 1, 0)] = 0;
  }

  /// Whether more machines from a state on are no gain, and whether those that
  /// are left can do what is before it.
  bool isUseful(size_t state, int machines) const;
  double best(size_t state, int machines) const {
    return value[index(state, machines)];
  }
  /// A first stage from k to j on so many machines before `after` others.
  void offer(size_t k, size_t j, int machines, int after, double seconds);
  /// The stages from the first state on, and what they take.
  double unwind(std::vector<PipeDreamGroup> &pieces) const;

  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  const double cap; ///< only plans of at most so many seconds are wanted

private:
  struct From {
    uint32_t cut = 0;
    int machines = 0;
  };
  size_t index(size_t state, int machines) const {
    return state * width + static_cast<size_t>(machines);
  }
  const size_t width;
  std::vector<double> value;
  std::vector<From> origin;
};

bool Suffixes::isUseful(size_t state, int machines) const {
  const double seconds = value[index(state, machines)];
  if (!(seconds <= cap))
    return false;
  for (int fewer = 0; fewer < machines; ++fewer)
    if (value[index(state, fewer)] <= seconds)
      return false;
  return true;
}

void Suffixes::offer(size_t k, size_t j, int machines, int after,
                     double seconds) {
  const double t = std::max(seconds, best(j, after));
  double &known = value[index(k, after + machines)];
  if (t < known && t <= cap) {
    known = t;
    origin[index(k, after + machines)] = {static_cast<uint32_t>(j), machines};
  }
}

double Suffixes::unwind(std::vector<PipeDreamGroup> &pieces) const {
  int machines = 0;
  for (int m = 1; m < static_cast<int>(width); ++m)
    if (best(0, m) < best(0, machines))
      machines = m;
  const double seconds = best(0, machines);
  for (size_t at = 0; std::isfinite(seconds) && machines > 0;) {
    const From from = origin[index(at, machines)];
    pieces.push_back({at, from.cut, from.machines, {}});
    at = from.cut;
    machines -= from.machines;
  }
  return seconds;
}

/// What stands before a state must be done by the machines that are left.
bool leavesEnough(const Suffixes &suffixes, size_t k, int machines) {
  const int left = suffixes.levels[0].machines - machines;
  return k == 0 ? left >= 0
                : left > 0 && suffixes.states.seconds[k] * (1 - 1e-9) <=
                                  suffixes.cap * left;
}

/// Stages of one level from k to j.
void offerStages(Suffixes &suffixes, size_t k, size_t j, double limit) {
  const CutStates &states = suffixes.states;
  const double seconds = states.seconds[j] - states.seconds[k];
  if (states.kept[j] - states.kept[k] > limit)
    return;
  const int most = suffixes.levels[0].machines;
  for (int after = 0; after < most; ++after) {
    if (!suffixes.isUseful(j, after))
      continue;
    const double rest = suffixes.best(j, after);
    const int least = machinesFor(seconds, suffixes.cap);
    for (int r = least; leavesEnough(suffixes, k, after + r); ++r) {
      if (stageBytes(states, k, j, after + r, r) > limit)
        continue;
      const double t = stageSeconds(states, suffixes.levels, 0, {k, j, r, {}},
                                    seconds, k == 0);
      suffixes.offer(k, j, r, after, t);
      if (t <= rest) // more of them are no gain
        break;
    }
  }
}

PipeDreamPlan oneLevel(const CutStates &states,
                       const std::vector<PipeDreamLevel> &levels, double limit,
                       double cap) {
  Suffixes suffixes(states, levels, cap);
  for (size_t k = states.size() - 1; k-- > 0;)
    for (uint32_t j : states.above[k]) {
      if (states.seconds[j] - states.seconds[k] > cap * levels[0].machines)
        break;
      offerStages(suffixes, k, j, limit);
    }
  PipeDreamPlan plan;
  plan.seconds = suffixes.unwind(plan.groups);
  if (std::isfinite(plan.seconds))
    flatten(plan, levels);
  return plan;
}

/// The outermost level. Its machines, here servers, are few and what is in them
/// is costly: that is looked for behind what can stand before it, which the
/// limit keeps short, so from the front, for one number of servers after the
/// other.
class Servers {
public:
  Servers(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
          double limit)
      : states(states), levels(levels), outer(levels.back()),
        each(devicesBelow(levels, levels.size() - 1)), limit(limit),
        fewest(leastServers()), width(static_cast<size_t>(outer.machines) + 1),
        components(states, levels, limit) {}

  PipeDreamPlan solve(double cap);

private:
  struct From {
    uint32_t cut = 0;
    int servers = 0;
  };
  size_t index(size_t state, int servers) const {
    return state * width + static_cast<size_t>(servers);
  }
  std::vector<int> leastServers() const;
  PipeDreamPlan best(double cap);
  PipeDreamPlan solve(double cap, int servers);
  std::vector<PipeDreamGroup> unwind(int servers) const;
  void offerStages(size_t k, double cap, int before, int servers, int after);

  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  const PipeDreamLevel outer;
  const int each; ///< devices of a server
  const double limit;
  int grain = 1;     ///< servers that are given to outer stages at a time
  double effort = 0; ///< that inner plans may still take, in their entries
  const std::vector<int> fewest; ///< servers from each state on, at least
  const size_t width;
  ComponentsWithin components;
  std::vector<double> value; ///< of prefixes on so many servers
  std::vector<From> origin;
};

/// With replicas that keep to no servers.
std::vector<int> Servers::leastServers() const {
  std::vector<int> least = devicesWithin(states, limit, outer.machines * each);
  for (int &devices : least)
    devices = (devices + each - 1) / each;
  return least;
}

/// Outer stages from k on, on `servers` between `before` and `after` others,
/// which must be able to do the rest, in time and in memory.
void Servers::offerStages(size_t k, double cap, int before, int servers,
                          int after) {
  if (effort <= 0 || 2 * states.cut[k] > cap * outer.bandwidth * servers)
    return; // it receives over that cut
  const double reach = states.seconds.back() * (1 - 1e-9) - cap * each * after;
  const auto next = std::find_if(
      states.above[k].begin(), states.above[k].end(), [&](uint32_t j) {
        return fewest[j] <= after && states.seconds[j] >= reach;
      });
  if (next == states.above[k].end())
    return;
  const double least = states.seconds[*next];
  if (least - states.seconds[k] > cap * (1 + 1e-9) * servers * each)
    return;
  components.solve(k, cap, servers, after, least * (1 - 1e-9));
  effort -= components.effort();
  const double prefix = value[index(k, before)];
  for (uint32_t j : components.ends()) {
    const double compute = components.best(j);
    if (!std::isfinite(compute) || fewest[j] > after)
      continue;
    const double t =
        std::max(prefix, stageSeconds(states, levels, levels.size() - 1,
                                      {k, j, servers, {}}, compute, k == 0));
    double &known = value[index(j, before + servers)];
    if (t <= cap && t < known) {
      known = t;
      origin[index(j, before + servers)] = {static_cast<uint32_t>(k), servers};
    }
  }
}

PipeDreamPlan Servers::solve(double cap, int servers) {
  value.assign(states.size() * width, inf);
  origin.assign(states.size() * width, {});
  value[index(0, 0)] = 0;
  const size_t end = states.size() - 1;
  for (size_t k = 0; k < end; ++k)
    for (int before = 0; before + fewest[k] <= servers; before += grain)
      if (value[index(k, before)] <= cap)
        for (int used = grain; before + used <= servers; used += grain)
          offerStages(k, cap, before, used, servers - before - used);
  PipeDreamPlan plan;
  plan.seconds = value[index(end, servers)];
  if (!std::isfinite(plan.seconds))
    return plan;
  plan.groups = unwind(servers);
  int after = servers;
  for (PipeDreamGroup &group : plan.groups) {
    after -= group.machines;
    components.solve(group.before, cap, group.machines, after,
                     states.seconds[group.after] * (1 - 1e-9));
    group.within = components.stages(group.after);
  }
  flatten(plan, levels);
  return plan;
}

std::vector<PipeDreamGroup> Servers::unwind(int servers) const {
  std::vector<PipeDreamGroup> groups;
  for (size_t at = states.size() - 1; at > 0; at = groups.front().before) {
    const From from = origin[index(at, servers)];
    groups.insert(groups.begin(), {from.cut, at, from.servers, {}});
    servers -= from.servers;
  }
  return groups;
}

PipeDreamPlan Servers::best(double cap) {
  PipeDreamPlan best;
  for (int servers = outer.machines / grain * grain;
       servers >= std::max(1, fewest[0]); servers -= grain) {
    if (states.seconds.back() * (1 - 1e-9) > cap * servers * each)
      break;
    PipeDreamPlan plan = solve(cap, servers);
    if (plan.seconds < best.seconds) {
      cap = std::min(cap, plan.seconds);
      best = std::move(plan);
    }
  }
  return best;
}

/// Many servers a dozenth at a time first: below what that gives, one at a time
/// as far as some effort goes.
PipeDreamPlan Servers::solve(double cap) {
  effort = inf;
  grain = outer.machines <= kFewServers ? 1 : (outer.machines + 11) / 12;
  PipeDreamPlan plan = best(cap);
  if (grain == 1)
    return plan;
  grain = 1;
  effort = 1e7;
  PipeDreamPlan finer = best(std::min(cap, plan.seconds));
  return finer.seconds < plan.seconds ? finer : plan;
}

PipeDreamPlan below(const CutStates &states,
                    const std::vector<PipeDreamLevel> &levels, double limit,
                    double cap) {
  cap *= 1 + 1e-12;
  if (levels.size() == 1)
    return oneLevel(states, levels, limit, cap);
  return Servers(states, levels, limit).solve(cap);
}

/// No plan is slower: all work on one machine, everything sent and exchanged.
double slowest(const CutStates &states,
               const std::vector<PipeDreamLevel> &levels) {
  double seconds = states.seconds.back();
  const double cut = *std::max_element(states.cut.begin(), states.cut.end());
  for (const PipeDreamLevel &level : levels)
    seconds += (4 * states.weights.back() + 2 * cut) / level.bandwidth;
  return seconds;
}

/// A search is quick below a cap near its result: half the states give a plan
/// to stay below, and of few states caps grow from what no plan can beat.
PipeDreamPlan searchCounted(const CutStates &states,
                            const std::vector<PipeDreamLevel> &levels,
                            double limit, double incumbent) {
  constexpr size_t kFew = 64;
  const double most = std::min(incumbent, slowest(states, levels));
  if (states.size() > kFew) {
    const CutStates half = states.only(spread(states, states.size() / 2));
    return below(
        states, levels, limit,
        std::min(most, searchCounted(half, levels, limit, incumbent).seconds));
  }
  double cap = states.seconds.back();
  for (const PipeDreamLevel &level : levels)
    cap /= level.machines;
  for (cap = std::min(1.1 * cap, most);;
       cap = std::min(std::max(2 * cap, most / 1024), most)) {
    PipeDreamPlan plan = below(states, levels, limit, cap);
    if (std::isfinite(plan.seconds) || cap >= most)
      return plan;
  }
}

} // namespace

PipeDreamPlan searchWithin(const CutStates &states,
                           const std::vector<PipeDreamLevel> &levels,
                           double limit, double incumbent,
                           SearchEffort &effort) {
  PipeDreamPlan plan = searchCounted(states, levels, limit, incumbent);
  effort.isEvery = levels.size() == 1;
  if (effort.isEvery)
    return plan;
  constexpr double kGain = 1e-10;
  const double cap =
      std::min({incumbent, plan.seconds, slowest(states, levels)});
  PipeDreamPlan faster =
      searchEvery(states, levels, limit, cap * (1 - kGain), effort);
  return faster.seconds < plan.seconds ? faster : plan;
}

} // namespace pipec::published
