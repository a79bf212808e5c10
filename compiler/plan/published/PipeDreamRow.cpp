#include "compiler/plan/published/PipeDreamRow.h"

#include <algorithm>
#include <cmath>

namespace pipec::published {

static constexpr double inf = std::numeric_limits<double>::infinity();

Row::Row(const CutStates &states, const PipeDreamLevel &level, int within)
    : states(states), machines_(level.machines), bandwidth(level.bandwidth),
      within(within),
      value(states.size() * static_cast<size_t>(level.machines), inf),
      origin(states.size() * static_cast<size_t>(level.machines)) {}

int machinesFor(double seconds, double cap) {
  constexpr double most = 1e9;
  const double machines = seconds / cap; // NaN of free work in no time
  return machines > 1 ? static_cast<int>(std::min(machines, most)) : 1;
}

/// Tries a last stage from k to j after prefixes of so many machines.
void Row::relax(size_t k, size_t j, double seconds, Range before) {
  double weights = states.weights[j] - states.weights[k];
  bool atEnd = j + 1 == states.size();
  double edges =
      2 * std::max(states.cut[k], atEnd ? 0.0 : states.cut[j]) / bandwidth;
  const double *prefix = &value[index(k, 1)];
  double *mine = &value[index(j, 1)];
  From *mineFrom = &origin[index(j, 1)];
  int least = machinesFor(seconds, cap_);
  int most = machines_ - before.low;
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

void Row::findEnds(size_t start) {
  ends_.clear();
  isEnd_.assign(states.size(), 0);
  for (uint32_t j : states.above[start]) {
    const double work = states.seconds[j] - states.seconds[start];
    const double weights = states.weights[j] - states.weights[start];
    const double least = work / (machines_ * within);
    if (least > cap_ * (1 + 1e-9))
      break;
    if (least + above_ * weights > cap_ * (1 + 1e-9))
      continue;
    // Each of at most as many stages as machines keeps its bytes once.
    if (kept.limit > 0 &&
        states.kept[j] - states.kept[start] > kept.limit * machines_ * within)
      continue;
    ends_.push_back(j);
    isEnd_[j] = 1;
  }
}

void Row::solve(size_t start, double cap, double reach,
                const Compute &compute) {
  cap_ = cap;
  findEnds(start);
  compute_.assign(states.size(), inf);
  compute(start, compute_);
  for (int m = 1; m <= machines_; ++m)
    for (uint32_t j : ends_) {
      double weights = states.weights[j] - states.weights[start];
      double t =
          (compute_[j] + 4 * (m - 1) * weights / (bandwidth * m) / within) / m;
      value[index(j, m)] = t <= cap && fits(start, j, 0, m) ? t : inf;
      origin[index(j, m)] = {static_cast<uint32_t>(start), m};
    }
  for (uint32_t k : ends_) {
    leaveIdle(k);
    // Prefixes that end at k and can still be completed.
    const double left = (reach - states.seconds[k]) / (cap * within);
    const bool isLeft = left > 1e-9;
    int high = machines_ - 1;
    if (isLeft)
      high = left < machines_
                 ? machines_ - static_cast<int>(std::ceil(left - 1e-9))
                 : 0;
    high = std::min(high, machines_ - 1);
    int low = 1;
    while (low <= high && value[index(k, low)] > cap)
      ++low;
    while (high >= low && value[index(k, high)] > cap)
      --high;
    // The stage after this cut receives over it, on at most what is left.
    if (low > high || 2 * states.cut[k] / (bandwidth * (machines_ - low)) > cap)
      continue;
    compute(k, compute_);
    double most = cap * (machines_ - low);
    for (uint32_t j : states.above[k]) {
      if (states.seconds[j] - states.seconds[k] > most * within)
        break;
      if (isEnd_[j] && compute_[j] <= most)
        relax(k, j, compute_[j], {low, high});
    }
  }
}

std::vector<Row::Piece> Row::pieces(size_t start, size_t end,
                                    int machines) const {
  std::vector<Piece> pieces;
  while (true) {
    From from = origin[index(end, machines)];
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

void append(PipeDreamPlan &plan, const Row::Piece &outer, int machinesOfServer,
            const std::vector<Row::Piece> &inner) {
  int server = 0, offset = 0;
  for (const PipeDreamPlan::Outer &group : plan.outer)
    server += group.machines;
  PipeDreamPlan::Outer group{outer.before, outer.after, outer.machines, {}};
  for (const Row::Piece &in : inner) {
    PipeDreamStage stage{in.before, in.after, in.machines * outer.machines, {}};
    for (int s = server; s < server + outer.machines; ++s)
      for (int r = 0; r < in.machines; ++r)
        stage.devices.push_back(s * machinesOfServer + offset + r);
    offset += in.machines;
    group.inner.push_back({in.before, in.after, in.machines, {}});
    plan.stages.push_back(std::move(stage));
  }
  plan.outer.push_back(std::move(group));
}

double exchangePerByte(const PipeDreamLevel &level, int divisor, int machines) {
  return 4 * (machines - 1) / (level.bandwidth * machines * divisor);
}

void computeBetween(const CutStates &states, size_t k,
                    std::vector<double> &row) {
  for (uint32_t j : states.above[k])
    row[j] = states.seconds[j] - states.seconds[k];
}

double stageSeconds(const CutStates &states, const PipeDreamLevel &level,
                    int within, size_t before, size_t after, double compute,
                    int machines) {
  const double weights = states.weights[after] - states.weights[before];
  const double exchange =
      4 * (machines - 1) * weights / (level.bandwidth * machines);
  if (before == 0)
    return (compute + exchange / within) / machines;
  const bool atEnd = after + 1 == states.size();
  const double edges =
      2 * std::max(states.cut[before], atEnd ? 0.0 : states.cut[after]);
  return std::max(compute + exchange, edges / level.bandwidth) / machines;
}

double planSeconds(const CutStates &states,
                   const std::vector<PipeDreamLevel> &levels,
                   const PipeDreamPlan &plan) {
  double seconds = 0;
  for (const PipeDreamPlan::Outer &group : plan.outer) {
    double compute = 0;
    for (const PipeDreamStage &stage : group.inner) {
      const double work =
          states.seconds[stage.after] - states.seconds[stage.before];
      double own = stageSeconds(states, levels[0], 1, stage.before, stage.after,
                                work, stage.replicas);
      if (stage.before == group.before) // what enters is the outer level's
        own = (work + exchangePerByte(levels[0], 1, stage.replicas) *
                          (states.weights[stage.after] -
                           states.weights[stage.before])) /
              stage.replicas;
      compute = std::max(compute, own);
    }
    seconds = std::max(seconds,
                       levels.size() == 1
                           ? compute
                           : stageSeconds(states, levels[1], levels[0].machines,
                                          group.before, group.after, compute,
                                          group.machines));
  }
  return seconds;
}

} // namespace pipec::published
