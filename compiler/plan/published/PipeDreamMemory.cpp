#include "compiler/plan/published/PipeDreamMemory.h"

#include "compiler/plan/published/PipeDreamRow.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

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

namespace {

/// The fewest replicas, each in `copies` servers, with which a stage of so many
/// bytes before `behind` devices keeps within the limit, and one more with
/// nothing to spare: a stage of r replicas before n devices keeps its bytes
/// ceil((n + r) / r) times, so that with room for q copies r >= n / (q - 1).
/// 0 where no number does.
int replicasWithin(double bytes, double limit, int behind, int copies) {
  if (bytes > limit)
    return 0;
  if (behind == 0 || bytes * (behind + 1) <= limit)
    return 1;
  const double times = std::floor(limit / bytes);
  return times < 2 ? 0
                   : static_cast<int>(std::ceil(behind / (times - 1) / copies));
}

/// From every state on the fewest machines with which each stage up to `end`
/// keeps within a limit, in `copies` servers before `after` devices. Fewer
/// devices behind never need more.
class Chain {
public:
  explicit Chain(const CutStates &states)
      : states(states), fewest(states.size()), next(states.size()) {}

  /// At most `most` machines; states from `end` back.
  void solve(size_t end, double limit, int copies, int after, int most) {
    std::fill(fewest.begin(), fewest.begin() + static_cast<long>(end),
              most + 1);
    fewest[end] = 0;
    const std::vector<double> room = roomOf(limit, copies, after, most);
    for (size_t k = end; k-- > 0;) {
      const double bytes = states.kept[end] - states.kept[k];
      int least = 1;
      while (least <= most && room[static_cast<size_t>(least)] < bytes)
        ++least;
      if (least > most)
        continue; // or of another branch
      for (size_t j = states.above.lastUpTo(k, end); j > k && fewest[k] > least;
           j = states.above.lastUpTo(k, j - 1))
        relax(k, j, limit, copies, after);
    }
  }

  const std::vector<int> &all() const { return fewest; }
  int machines(size_t from) const { return fewest[from]; }

  std::vector<PipeDreamGroup> pieces(size_t from, size_t end) const {
    std::vector<PipeDreamGroup> pieces;
    for (size_t k = from; k != end; k = next[k])
      pieces.push_back({k, next[k], fewest[k] - fewest[next[k]], {}});
    return pieces;
  }

private:
  /// What so many machines hold at most: a stage of r replicas with n devices
  /// from it on holds no more than r/n of the limit.
  static std::vector<double> roomOf(double limit, int copies, int after,
                                    int most) {
    std::vector<double> room(static_cast<size_t>(most) + 1, 0);
    for (int m = 1; m <= most; ++m) {
      double share = 0;
      for (int n = after + copies * (m - 1) + 1; n <= after + copies * m; ++n)
        share += 1.0 / n;
      room[static_cast<size_t>(m)] =
          room[static_cast<size_t>(m) - 1] + (1 + 1e-9) * limit * share;
    }
    return room;
  }

  /// A stage from k to j.
  void relax(size_t k, uint32_t j, double limit, int copies, int after) {
    if (fewest[j] + 1 >= fewest[k])
      return;
    const int replicas = replicasWithin(states.kept[j] - states.kept[k], limit,
                                        after + copies * fewest[j], copies);
    if (replicas > 0 && fewest[j] + replicas < fewest[k]) {
      fewest[k] = fewest[j] + replicas;
      next[k] = j;
    }
  }

  const CutStates &states;
  std::vector<int> fewest;
  std::vector<uint32_t> next;
};

/// A plan within the limit; none has no stages.
using PlanWithin = std::function<PipeDreamPlan(double limit)>;

/// The least limit that has a plan, to so many bytes, and its plan. One stage
/// on all devices keeps everything once.
PipeDreamPlan bisect(const CutStates &states, double fails, double bytes,
                     const PlanWithin &within) {
  double fits = std::ceil(states.kept.back());
  PipeDreamPlan best = within(fits);
  // Sizes that fill a double have no neighbours a byte away.
  bytes = std::max(bytes, 1e-15 * fits);
  while (fits - fails > bytes) {
    const double middle = std::floor(0.5 * (fits + fails));
    PipeDreamPlan plan = within(middle);
    if (plan.stages.empty()) {
      fails = middle;
    } else {
      best = std::move(plan);
      fits = std::min(middle, std::ceil(mostBytes(states, best)));
    }
  }
  return best;
}

/// Of every level the fewest devices for each number of machines, each split
/// into stages of its own.
class Nested {
public:
  Nested(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
         double limit)
      : states(states), levels(levels), limit(limit), chain(states) {
    for (int n = 1; n <= devicesBelow(levels, levels.size()); ++n)
      share.push_back(share.back() + 1.0 / n);
  }

  PipeDreamPlan plan() {
    const Component all{levels.size() - 1, states.size() - 1, 1, 0};
    PipeDreamPlan plan;
    if (solve(all).fewest[0] < none) {
      plan.groups = stages(all, 0, true);
      flatten(plan, levels);
    }
    return plan;
  }

private:
  static constexpr int none = std::numeric_limits<int>::max();
  /// What ends at a state on one component of a level, of which there are
  /// `copies` before `after` devices.
  struct Component {
    size_t level, end;
    int copies, after;
    auto operator<=>(const Component &) const = default;
  };
  /// The stage that is first: where it ends, on so many machines.
  struct From {
    uint32_t end = 0;
    int machines = 0;
  };
  struct Solution {
    /// From every state on, on all machines.
    std::vector<int> fewest;
    /// On at most so many, and the stage on the first of them.
    std::vector<int> with;
    std::vector<From> first;
  };
  const Solution &solve(const Component &component);
  void begin(const Component &c, Solution &solution, size_t j, int behind);
  bool leavesEnough(size_t k, int machines, int devices) const;
  const std::vector<int> &fewestOf(const Component &component);
  std::vector<PipeDreamGroup> stages(const Component &component, size_t from,
                                     bool isFront);
  bool isTop(const Component &c) const { return c.level + 1 == levels.size(); }
  size_t index(const Component &c, size_t state, int machines) const {
    return state * (static_cast<size_t>(levels[c.level].machines) + 1) +
           static_cast<size_t>(machines);
  }
  /// A stage on so many machines before so many devices of each copy.
  Component inside(const Component &c, size_t end, int machines,
                   int behind) const {
    return {c.level - 1, end, c.copies * machines, c.after + c.copies * behind};
  }

  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  const double limit;
  Chain chain;
  std::vector<double> share{0}; ///< sums of 1/n
  std::map<Component, Solution> known;
};

/// Of two levels every component is asked for once.
const std::vector<int> &Nested::fewestOf(const Component &c) {
  if (c.level > 0)
    return solve(c).fewest;
  auto solveChain = [&]() -> const std::vector<int> & {
    chain.solve(c.end, limit, c.copies, c.after, levels[0].machines);
    return chain.all();
  };
  if (levels.size() == 2)
    return solveChain();
  auto [at, isNew] = known.try_emplace(c);
  if (isNew)
    at->second.fewest = solveChain();
  return at->second.fewest;
}

/// The outermost machines that are left must hold what is before a state: a
/// stage of r replicas with n devices from it on no more than r/n of the limit.
bool Nested::leavesEnough(size_t k, int machines, int devices) const {
  const int left = (levels.back().machines - machines) *
                   devicesBelow(levels, levels.size() - 1);
  return states.kept[k] <=
         (1 + 1e-9) * limit *
             (share[std::min(static_cast<size_t>(devices + left),
                             share.size() - 1)] -
              share[static_cast<size_t>(devices)]);
}

/// Stages that end at j before so many machines.
void Nested::begin(const Component &c, Solution &solution, size_t j,
                   int behind) {
  const int each = devicesBelow(levels, c.level);
  const int most = levels[c.level].machines;
  const int devices = solution.with[index(c, j, behind)];
  for (int used = 1; behind + used <= most; ++used) {
    const std::vector<int> &inner = fewestOf(inside(c, j, used, devices));
    for (size_t k = 0; k < j; ++k) {
      if (inner[k] > each)
        continue;
      const size_t at = index(c, k, behind + used);
      if (devices + used * inner[k] < solution.with[at]) {
        solution.with[at] = devices + used * inner[k];
        solution.first[at] = {static_cast<uint32_t>(j), used};
      }
    }
  }
}

/// Of the outermost level any plan will do.
const Nested::Solution &Nested::solve(const Component &c) {
  auto [at, isNew] = known.try_emplace(c);
  Solution &solution = at->second;
  if (!isNew)
    return solution;
  const int most = levels[c.level].machines;
  std::vector<int> &with = solution.with;
  with.assign(index(c, c.end + 1, 0), none);
  solution.first.resize(with.size());
  with[index(c, c.end, 0)] = 0;
  auto close = [&](size_t k) {
    for (size_t m = index(c, k, 1); m <= index(c, k, most); ++m)
      if (with[m - 1] <= with[m])
        with[m] = with[m - 1], solution.first[m] = solution.first[m - 1];
  };
  for (size_t j = c.end; j > 0; --j) {
    close(j);
    if (close(0); isTop(c) && with[index(c, 0, most)] < none)
      break;
    for (int m = 0; m < most; ++m) {
      const int devices = with[index(c, j, m)];
      if (devices < none && (m == 0 || devices < with[index(c, j, m - 1)]) &&
          (!isTop(c) || leavesEnough(j, m, devices)))
        begin(c, solution, j, m);
    }
  }
  close(0);
  solution.fewest.assign(states.size(), none);
  for (size_t k = 0; k < c.end; ++k)
    solution.fewest[k] = with[index(c, k, most)];
  return solution;
}

/// The very first stage keeps no more with the machines that are left.
std::vector<PipeDreamGroup> Nested::stages(const Component &c, size_t from,
                                           bool isFront) {
  std::vector<PipeDreamGroup> stages;
  if (c.level == 0) {
    chain.solve(c.end, limit, c.copies, c.after, levels[0].machines);
    stages = chain.pieces(from, c.end);
    if (isFront)
      stages.front().machines += levels[0].machines - chain.machines(from);
    return stages;
  }
  const Solution solution = solve(c);
  int left = levels[c.level].machines;
  for (size_t k = from; k != c.end;) {
    const From first = solution.first[index(c, k, left)];
    left -= first.machines;
    PipeDreamGroup stage{k, first.end, first.machines, {}};
    stage.within =
        this->stages(inside(c, first.end, first.machines,
                            solution.with[index(c, first.end, left)]),
                     k, isFront && k == from);
    stages.push_back(std::move(stage));
    k = first.end;
  }
  return stages;
}

} // namespace

PipeDreamPlan planWithin(const CutStates &states, double limit, int devices) {
  const size_t end = states.size() - 1;
  Chain chain(states);
  chain.solve(end, limit, 1, 0, devices);
  PipeDreamPlan plan;
  if (chain.machines(0) <= devices) {
    plan.groups = chain.pieces(0, end);
    flatten(plan, {{devices, 0}});
  }
  return plan;
}

PipeDreamPlan planWithin(const CutStates &states,
                         const std::vector<PipeDreamLevel> &levels,
                         double limit) {
  return levels.size() == 1 ? planWithin(states, limit, levels[0].machines)
                            : Nested(states, levels, limit).plan();
}

PipeDreamPlan leastPlan(const CutStates &states, int devices) {
  return bisect(states, 0, 1, [&](double limit) {
    return planWithin(states, limit, devices);
  });
}

double leastBytes(const CutStates &states, int devices) {
  return std::ceil(mostBytes(states, leastPlan(states, devices)));
}

PipeDreamPlan leastPlan(const CutStates &states,
                        const std::vector<PipeDreamLevel> &levels) {
  const int devices = devicesBelow(levels, levels.size());
  if (levels.size() == 1)
    return leastPlan(states, devices);
  const double least = leastBytes(states, devices);
  PipeDreamPlan plan = Nested(states, levels, least).plan();
  // A step takes longer than of one level: to a thousandth.
  if (!plan.stages.empty())
    return plan;
  return bisect(states, least, 1e-3 * least, [&](double limit) {
    return Nested(states, levels, limit).plan();
  });
}

} // namespace pipec::published
