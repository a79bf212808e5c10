#include "compiler/plan/published/PipeDreamMemory.h"

#include "compiler/plan/published/PipeDreamRow.h"

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
      const std::vector<uint32_t> &above = states.above[k];
      auto j = std::upper_bound(above.begin(), above.end(), end);
      while (j != above.begin() && fewest[k] > least)
        relax(k, *--j, limit, copies, after);
    }
  }

  const std::vector<int> &all() const { return fewest; }
  int machines(size_t from) const { return fewest[from]; }

  std::vector<Row::Piece> pieces(size_t from, size_t end) const {
    std::vector<Row::Piece> pieces;
    for (size_t k = from; k != end; k = next[k])
      pieces.push_back({k, next[k], fewest[k] - fewest[next[k]]});
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

PipeDreamPlan planWithin(const CutStates &states, double limit, int devices) {
  const size_t end = states.size() - 1;
  Chain chain(states);
  chain.solve(end, limit, 1, 0, devices);
  PipeDreamPlan plan;
  if (chain.machines(0) <= devices)
    append(plan, {0, end, 1}, devices, chain.pieces(0, end));
  return plan;
}

/// Outer stages on whole servers, each split into stages of its own.
struct Servers {
  struct From {
    uint32_t end = 0;
    int servers = 0;
  };
  std::vector<int> fewest;
  std::vector<From> from;

  Servers(const CutStates &states, Chain &chain, double limit, int servers,
          int each)
      : fewest(states.size(), servers + 1), from(states.size()) {
    fewest.back() = 0;
    for (size_t j = states.size(); j-- > 1;)
      for (int copies = 1;
           fewest[j] + copies <= std::min(servers, fewest[0] - 1); ++copies) {
        chain.solve(j, limit, copies, fewest[j] * each, each);
        for (size_t k = 0; k < j; ++k)
          if (chain.machines(k) <= each && fewest[j] + copies < fewest[k]) {
            fewest[k] = fewest[j] + copies;
            from[k] = {static_cast<uint32_t>(j), copies};
          }
      }
  }
};

PipeDreamPlan planWithin(const CutStates &states, double limit, int servers,
                         int each) {
  Chain chain(states);
  const Servers outer(states, chain, limit, servers, each);
  PipeDreamPlan plan;
  if (outer.fewest[0] > servers)
    return plan;
  for (size_t k = 0; k + 1 != states.size(); k = outer.from[k].end) {
    const Servers::From &stage = outer.from[k];
    chain.solve(stage.end, limit, stage.servers, outer.fewest[stage.end] * each,
                each);
    std::vector<Row::Piece> inner = chain.pieces(k, stage.end);
    // The first stage keeps no more with the devices that are left.
    inner.front().machines += each - chain.machines(k);
    append(plan, {k, stage.end, stage.servers}, each, inner);
  }
  return plan;
}

} // namespace

PipeDreamPlan leastPlan(const CutStates &states, int devices) {
  return bisect(states, 0, 1, [&](double limit) {
    return planWithin(states, limit, devices);
  });
}

std::vector<int> devicesWithin(const CutStates &states, double limit,
                               int devices) {
  Chain chain(states);
  chain.solve(states.size() - 1, limit, 1, 0, devices);
  return chain.all();
}

double leastBytes(const CutStates &states, int devices) {
  return std::ceil(mostBytes(states, leastPlan(states, devices)));
}

PipeDreamPlan leastPlan(const CutStates &states, int servers, int each) {
  const double least = leastBytes(states, servers * each);
  PipeDreamPlan plan = planWithin(states, least, servers, each);
  // A step takes longer than of one level: to a thousandth.
  if (!plan.stages.empty())
    return plan;
  return bisect(states, least, 1e-3 * least, [&](double limit) {
    return planWithin(states, limit, servers, each);
  });
}

} // namespace pipec::published
