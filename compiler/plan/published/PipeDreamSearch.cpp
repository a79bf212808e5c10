#include "compiler/plan/published/PipeDreamSearch.h"

#include "compiler/plan/published/PipeDreamMemory.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::published {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// Where a table entry comes from: the cut before its last stage and that
/// stage's machines; `cut` = the row's own start for a single stage. No
/// machines: one is idle, see the entry with one less.
struct From {
  uint32_t cut = 0;
  int machines = 0;
};

/// One level's table for intervals that start at one state: best seconds with
/// exactly m machines, m = 1..machines, for every end.
///
/// Only plans of at most `cap` seconds are wanted, and only ends that reach at
/// least `reach` seconds of work. A machine covers at most cap * within seconds
/// (within = machines of a component below), so an entry that leaves too much
/// for the machines it leaves is dropped: near the optimum few entries stay.
///
/// Under a memory limit an idle machine counts as if it held minibatches, so
/// that what is found fits. Where compute times depend on what comes before, no
/// machine is left idle.
class Row {
public:
  Row(const CutStates &states, const PipeDreamLevel &level, int within);

  /// Stages must fit from now on.
  void limit(const StageBytes &bytes) { kept = bytes; }

  /// What the level above exchanges for a byte of weights, in seconds:
  /// intervals that it leaves too little time for are dropped from now on.
  void exchangeAbove(double secondsPerByte) { above_ = secondsPerByte; }

  /// Fills the row for intervals from `start`. compute(k, before, used, row)
  /// writes the compute seconds from k to each state above it, inf where they
  /// exceed what is useful. With `varies` they are those of `used` machines
  /// after `before` others; without, of any.
  template <typename Compute>
  void solve(size_t start, double cap, double reach, bool varies,
             Compute compute);

  double best(size_t end, int machines) const {
    return value[index(end, machines)];
  }
  From from(size_t end, int machines) const {
    return origin[index(end, machines)];
  }
  /// The last solution's.
  const std::vector<uint32_t> &ends() const { return ends_; }

private:
  size_t index(size_t end, int machines) const {
    return end * static_cast<size_t>(machines_) +
           static_cast<size_t>(machines - 1);
  }
  struct Range {
    int low, high;
  };
  void relax(size_t k, size_t j, double seconds, Range before, Range last);
  bool fits(size_t k, size_t j, int before, int used) const {
    return kept.limit <= 0 ||
           stageBytes(states, k, j, kept.behind(machines_ - before),
                      kept.copies * used) <= kept.limit;
  }
  void leaveIdle(size_t end);

  const CutStates &states;
  const int machines_;
  const double bandwidth, within;
  double cap_ = 0, reach_ = 0, above_ = 0;
  std::vector<uint32_t> ends_; ///< that the cap leaves for intervals from start
  std::vector<char> isEnd_;
  std::vector<double> value;
  std::vector<From> origin;
  std::vector<double> compute_;
  StageBytes kept;
};

Row::Row(const CutStates &states, const PipeDreamLevel &level, int within)
    : states(states), machines_(level.machines), bandwidth(level.bandwidth),
      within(within),
      value(states.size() * static_cast<size_t>(level.machines), inf),
      origin(states.size() * static_cast<size_t>(level.machines)) {}

/// Tries a last stage from k to j of so many machines after prefixes of so
/// many.
void Row::relax(size_t k, size_t j, double seconds, Range before, Range last) {
  double weights = states.weights[j] - states.weights[k];
  bool atEnd = j + 1 == states.size();
  double edges =
      2 * std::max(states.cut[k], atEnd ? 0.0 : states.cut[j]) / bandwidth;
  const double *prefix = &value[index(k, 1)];
  double *mine = &value[index(j, 1)];
  From *mineFrom = &origin[index(j, 1)];
  int least = std::max(last.low, static_cast<int>(seconds / cap_));
  int most = std::min(last.high, machines_ - before.low);
  for (int used = least; used <= most; ++used) {
    double stage =
        (seconds + 4 * (used - 1) * weights / (bandwidth * used)) / used;
    stage = std::max(stage, edges / used);
    if (stage > cap_)
      continue;
    for (int m = used + before.low;
         m <= std::min(machines_, used + before.high); ++m) {
      double t = std::max(prefix[m - used - 1], stage);
      if (t < mine[m - 1] && fits(k, j, m - used, used)) {
        mine[m - 1] = t;
        mineFrom[m - 1] = {static_cast<uint32_t>(k), used};
      }
    }
  }
}

/// An entry may leave a machine idle: no worse with one more.
void Row::leaveIdle(size_t end) {
  for (int m = 2; m <= machines_; ++m)
    if (value[index(end, m - 1)] < value[index(end, m)]) {
      value[index(end, m)] = value[index(end, m - 1)];
      origin[index(end, m)] = {0, 0};
    }
}

template <typename Compute>
void Row::solve(size_t start, double cap, double reach, bool varies,
                Compute compute) {
  cap_ = cap;
  reach_ = reach;
  ends_.clear();
  isEnd_.assign(states.size(), 0);
  for (uint32_t j : states.above[start]) {
    const double work = states.seconds[j] - states.seconds[start];
    const double weights = states.weights[j] - states.weights[start];
    const double least = work / (machines_ * within);
    if (least > cap * (1 + 1e-9))
      break;
    if (least + above_ * weights > cap * (1 + 1e-9))
      continue;
    ends_.push_back(j);
    isEnd_[j] = 1;
  }
  compute_.assign(states.size(), inf);
  for (int m = 1; m <= machines_; ++m) {
    if (m == 1 || varies)
      compute(start, 0, m, compute_);
    for (uint32_t j : ends_) {
      double weights = states.weights[j] - states.weights[start];
      double t =
          (compute_[j] + 4 * (m - 1) * weights / (bandwidth * m) / within) / m;
      value[index(j, m)] = t <= cap && fits(start, j, 0, m) ? t : inf;
      origin[index(j, m)] = {static_cast<uint32_t>(start), m};
    }
  }
  for (uint32_t k : ends_) {
    if (!varies)
      leaveIdle(k);
    // Prefixes that end at k and can still be completed.
    double left = (reach - states.seconds[k]) / (cap * within);
    int high = std::min(machines_ - 1,
                        machines_ - static_cast<int>(std::ceil(left - 1e-9)));
    int low = 1;
    while (low <= high && value[index(k, low)] > cap)
      ++low;
    while (high >= low && value[index(k, high)] > cap)
      --high;
    // The stage after this cut receives over it, on at most what is left.
    if (low > high || 2 * states.cut[k] / (bandwidth * (machines_ - low)) > cap)
      continue;
    auto after = [&](Range before, Range last) {
      compute(k, before.low, last.low, compute_);
      double most = cap * (machines_ - before.low);
      for (uint32_t j : states.above[k]) {
        if (states.seconds[j] - states.seconds[k] > most * within)
          break;
        if (isEnd_[j] && compute_[j] <= most)
          relax(k, j, compute_[j], before, last);
      }
    };
    if (!varies) {
      after({low, high}, {1, machines_});
      continue;
    }
    for (int before = low; before <= high; ++before)
      for (int used = 1;
           value[index(k, before)] <= cap && used <= machines_ - before; ++used)
        after({before, before}, {used, used});
  }
}

/// Compute seconds from k to every state above.
void computeBetween(const CutStates &states, size_t k,
                    std::vector<double> &row) {
  for (uint32_t j : states.above[k])
    row[j] = states.seconds[j] - states.seconds[k];
}

/// The stages of one level's best plan from `start` to `end`, first to last, as
/// (before, after, machines).
struct Piece {
  size_t before, after;
  int machines;
};
std::vector<Piece> unwind(const Row &row, size_t start, size_t end,
                          int machines) {
  std::vector<Piece> pieces;
  while (true) {
    From from = row.from(end, machines);
    if (from.machines == 0) {
      --machines;
      continue;
    }
    pieces.push_back({from.cut, end, from.machines});
    if (from.cut == start)
      break;
    machines -= from.machines;
    end = from.cut;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

class TwoLevels {
public:
  TwoLevels(const CutStates &states, const PipeDreamLevel &inner,
            const PipeDreamLevel &outer, double limit)
      : states(states), inner(inner), outer(outer), limit(limit),
        innerRow(states, inner, 1) {}

  PipeDreamPlan solve(double incumbent);

private:
  void solveInner(size_t k, double cap, double reach, int serversBefore,
                  int servers);
  void innerFrom(size_t k, double cap, int serversBefore,
                 std::vector<double> &row);
  void innerOf(size_t k, double cap, int serversBefore, int servers,
               std::vector<double> &row);

  const CutStates &states;
  const PipeDreamLevel inner, outer;
  const double limit;
  Row innerRow;
};

/// The inner level for an outer stage on `servers`, within as many caps.
void TwoLevels::solveInner(size_t k, double cap, double reach,
                           int serversBefore, int servers) {
  const int after = outer.machines - serversBefore - servers;
  innerRow.limit({limit, servers, after * inner.machines});
  // What the first stage exchanges is divided, as published.
  const int divisor = serversBefore == 0 ? inner.machines : 1;
  innerRow.exchangeAbove(4 * (servers - 1) /
                         (outer.bandwidth * servers * divisor));
  innerRow.solve(k, cap * servers, reach, false,
                 [&](size_t from, int, int, std::vector<double> &compute) {
                   computeBetween(states, from, compute);
                 });
}

/// The inner level's best with all its machines, from k to every state above,
/// for an outer stage on `servers`. It must leave no more than the servers
/// after it can do.
void TwoLevels::innerOf(size_t k, double cap, int serversBefore, int servers,
                        std::vector<double> &row) {
  if (2 * states.cut[k] > cap * outer.bandwidth * servers)
    return; // it receives over that cut
  const int after = outer.machines - serversBefore - servers;
  const double end = states.seconds.back();
  solveInner(k, cap, end * (1 - 1e-9) - cap * inner.machines * after,
             serversBefore, servers);
  for (uint32_t j : innerRow.ends())
    row[j] = std::min(row[j], innerRow.best(j, inner.machines));
}

/// Of any number of servers.
void TwoLevels::innerFrom(size_t k, double cap, int serversBefore,
                          std::vector<double> &row) {
  for (int c = 1; c <= outer.machines - serversBefore; ++c)
    innerOf(k, cap, serversBefore, c, row);
}

PipeDreamPlan TwoLevels::solve(double incumbent) {
  Row outerRow(states, outer, inner.machines);
  double cap = incumbent * (1 + 1e-12);
  size_t end = states.size() - 1;
  // What a stage keeps depends on the servers after it: under a limit its best
  // inner plan does, too.
  outerRow.solve(
      0, cap, states.seconds[end], limit > 0,
      [&](size_t from, int before, int used, std::vector<double> &compute) {
        for (uint32_t j : states.above[from])
          compute[j] = inf;
        if (limit > 0)
          innerOf(from, cap, before, used, compute);
        else
          innerFrom(from, cap, before, compute);
      });
  PipeDreamPlan plan;
  plan.seconds = outerRow.best(end, outer.machines);
  if (!std::isfinite(plan.seconds))
    return plan;
  int server = 0;
  for (const Piece &piece : unwind(outerRow, 0, end, outer.machines)) {
    solveInner(piece.before, cap, states.seconds[piece.after] * (1 - 1e-9),
               server, piece.machines);
    PipeDreamPlan::Outer group{piece.before, piece.after, piece.machines, {}};
    int offset = 0;
    for (const Piece &in :
         unwind(innerRow, piece.before, piece.after, inner.machines)) {
      PipeDreamStage stage{
          in.before, in.after, in.machines * piece.machines, {}};
      for (int s = 0; s < piece.machines; ++s)
        for (int r = 0; r < in.machines; ++r)
          stage.devices.push_back((server + s) * inner.machines + offset + r);
      offset += in.machines;
      group.inner.push_back({in.before, in.after, in.machines, {}});
      plan.stages.push_back(std::move(stage));
    }
    server += piece.machines;
    plan.outer.push_back(std::move(group));
  }
  return plan;
}

PipeDreamPlan oneLevel(const CutStates &states, const PipeDreamLevel &level,
                       double incumbent, double limit) {
  Row row(states, level, 1);
  row.limit({limit, 1, 0});
  size_t end = states.size() - 1;
  row.solve(0, incumbent * (1 + 1e-12), states.seconds[end], false,
            [&](size_t from, int, int, std::vector<double> &compute) {
              computeBetween(states, from, compute);
            });
  PipeDreamPlan plan;
  plan.seconds = row.best(end, level.machines);
  if (!std::isfinite(plan.seconds))
    return plan;
  int device = 0;
  for (const Piece &piece : unwind(row, 0, end, level.machines)) {
    PipeDreamStage stage{piece.before, piece.after, piece.machines, {}};
    for (int r = 0; r < piece.machines; ++r)
      stage.devices.push_back(device++);
    plan.stages.push_back(std::move(stage));
  }
  plan.outer.push_back({0, end, 1, plan.stages});
  return plan;
}

PipeDreamPlan solveLevels(const CutStates &states,
                          const std::vector<PipeDreamLevel> &levels,
                          double incumbent, double limit = 0) {
  if (levels.size() == 1)
    return oneLevel(states, levels[0], incumbent, limit);
  return TwoLevels(states, levels[0], levels[1], limit).solve(incumbent);
}

} // namespace

double dataParallelSeconds(const CutStates &states,
                           const std::vector<PipeDreamLevel> &levels) {
  double seconds = states.seconds.back(), weights = states.weights.back();
  int within = 1;
  for (const PipeDreamLevel &level : levels) {
    int m = level.machines;
    seconds =
        (seconds + 4 * (m - 1) * weights / (level.bandwidth * m) / within) / m;
    within = m;
  }
  return seconds;
}

/// No plan is slower: all work on one machine, everything sent and exchanged.
static double slowest(const CutStates &states,
                      const std::vector<PipeDreamLevel> &levels) {
  double seconds = states.seconds.back();
  const double cut = *std::max_element(states.cut.begin(), states.cut.end());
  for (const PipeDreamLevel &level : levels)
    seconds += (4 * states.weights.back() + 2 * cut) / level.bandwidth;
  return seconds;
}

/// A search is quick below a cap near its result. Half the states give a plan
/// to stay below; from there caps grow from what no plan can beat.
static PipeDreamPlan searchFreely(const CutStates &states,
                                  const std::vector<PipeDreamLevel> &levels,
                                  double incumbent = inf) {
  constexpr size_t few = 128;
  incumbent = std::min(incumbent, dataParallelSeconds(states, levels));
  if (states.size() <= few)
    return solveLevels(states, levels, incumbent);
  const CutStates half = states.only(spread(states, states.size() / 2));
  incumbent =
      std::min(incumbent, searchFreely(half, levels, incumbent).seconds);
  double least = states.seconds.back();
  for (const PipeDreamLevel &level : levels)
    least /= level.machines;
  for (double gap = 0.005; least * (1 + 2 * gap) < incumbent && gap < 1;
       gap *= 2) {
    PipeDreamPlan plan = solveLevels(states, levels, least * (1 + gap));
    if (std::isfinite(plan.seconds))
      return plan;
  }
  return solveLevels(states, levels, incumbent);
}

/// The fastest plan that fits. Minibatches in flight depend on how many
/// machines a plan uses: every number is tried. A search is quick below a cap
/// near its result, so caps grow from what is reached without a limit.
static PipeDreamPlan searchWithin(const CutStates &states,
                                  std::vector<PipeDreamLevel> levels,
                                  double limit, double incumbent) {
  PipeDreamPlan best;
  best.seconds = incumbent;
  const double most = slowest(states, levels);
  for (int &machines = levels.back().machines; machines > 0; --machines) {
    double cap = 1.1 * searchFreely(states, levels).seconds;
    if (cap >= 1.1 * best.seconds)
      continue;
    cap = std::min(cap, best.seconds);
    PipeDreamPlan plan = solveLevels(states, levels, cap, limit);
    while (!std::isfinite(plan.seconds) && cap < std::min(best.seconds, most)) {
      cap = std::min({std::max(2 * cap, most / 1024), best.seconds, most});
      plan = solveLevels(states, levels, cap, limit);
    }
    if (plan.seconds < best.seconds)
      best = std::move(plan);
  }
  if (best.stages.empty())
    best.seconds = inf;
  return best;
}

PipeDreamPlan searchPipeDream(const CutStates &states,
                              const std::vector<PipeDreamLevel> &levels,
                              double limit, double incumbent) {
  return limit > 0 ? searchWithin(states, levels, limit, incumbent)
                   : searchFreely(states, levels, incumbent);
}

} // namespace pipec::published
