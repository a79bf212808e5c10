#include "compiler/plan/published/PipeDreamRow.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace pipec::published {

static constexpr double inf = std::numeric_limits<double>::infinity();
static constexpr double near = 1e-9; ///< of what is as good as equal

static int withinOf(const std::vector<PipeDreamLevel> &levels, size_t level) {
  return level == 0 ? 1 : levels[level - 1].machines;
}

Row::Row(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
         size_t level)
    : states(states), machines_(levels[level].machines),
      bandwidth(levels[level].bandwidth), within(withinOf(levels, level)),
      devices(devicesBelow(levels, level)),
      value(states.size() * static_cast<size_t>(machines_), inf),
      origin(states.size() * static_cast<size_t>(machines_)) {}

int machinesFor(double seconds, double cap) {
  constexpr double most = 1e9;
  const double machines = seconds / cap; // NaN of free work in no time
  return machines > 1 ? static_cast<int>(std::min(machines, most)) : 1;
}

/// A component that starts at a cut receives over it, in one of the levels
/// above.
double Row::leastCopies(size_t start) const {
  double least = start == 0 || !above_ ? 0 : inf;
  for (const Row *row = above_; row && start > 0; row = row->above_)
    least =
        std::min(least, 2 * states.cut[start] / (row->bandwidth * planCap_));
  return std::max(1.0, std::ceil(least * (1 - near)));
}

/// Before a stage of the outermost level are whole machines of it.
double Row::wasteBefore(size_t start) const {
  if (!above_ || above_->above_)
    return 0;
  const double machine = machines_ * devices * planCap_;
  const double before = states.seconds[start];
  return std::max(0.0,
                  std::ceil(before / machine * (1 - near)) * machine - before);
}

/// That the seconds ask for.
double Row::copiesFor(double seconds) const {
  return std::max(least_, std::ceil(seconds / planCap_ * (1 - near)));
}

/// As many copies as the seconds ask for must leave enough for the other work.
bool Row::isUseful(double work, int machines, double seconds) const {
  if (copies_ == 0 || planCap_ <= 0)
    return true;
  const double copies = copiesFor(seconds);
  return copies <= copies_ &&
         copies * machines * devices * planCap_ <= (left_ + work) * (1 + near);
}

/// Some stage of this level may compute so long on each of its machines. It
/// may then do less as well: entries end within intervals too.
bool Row::hasUse(bool isFirst, double weights, double compute) const {
  for (int used = machinesFor(compute, cap_); used <= machines_; ++used) {
    const double exchange =
        4 * (used - 1) * weights / (bandwidth * used) / (isFirst ? within : 1);
    if ((compute + exchange) / used <= cap_ * (1 + 1e-9))
      return true;
  }
  return false;
}

/// Tries a last stage from k to j after prefixes of so many machines.
void Row::relax(size_t k, size_t j, double seconds, Range before, double cap) {
  double weights = states.weights[j] - states.weights[k];
  bool atEnd = j + 1 == states.size();
  double edges =
      2 * std::max(states.cut[k], atEnd ? 0.0 : states.cut[j]) / bandwidth;
  const double *prefix = &value[index(k, 1)];
  double *mine = &value[index(j, 1)];
  From *mineFrom = &origin[index(j, 1)];
  int least = machinesFor(std::max(seconds, edges), cap);
  int most = machines_ - before.low;
  if (effort_ && most >= least)
    *effort_ -= (most - least + 1) * (before.high - before.low + 2);
  for (int used = least; used <= most; ++used) {
    double stage =
        (seconds + 4 * (used - 1) * weights / (bandwidth * used)) / used;
    stage = std::max(stage, edges / used);
    if (stage > cap)
      continue;
    for (int m = used + before.low;
         m <= std::min(machines_, used + before.high); ++m) {
      double t = std::max(prefix[m - used - 1], stage);
      if (t < mine[m - 1]) {
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
    const double least = work / (machines_ * devices);
    if (least > cap_ * (1 + 1e-9))
      break;
    if (above_ && !above_->hasUse(start == 0 || above_->above_, weights, least))
      continue;
    ends_.push_back(j);
    isEnd_[j] = 1;
  }
}

void Row::solve(size_t start, double cap, double reach,
                const Compute &compute) {
  cap_ = cap;
  if (copies_ > 0 && planCap_ > 0) {
    least_ = leastCopies(start);
    left_ = spare_ - wasteBefore(start);
  }
  findEnds(start);
  compute_.assign(states.size(), inf);
  compute(start, compute_);
  for (int m = 1; m <= machines_; ++m)
    for (uint32_t j : ends_) {
      double weights = states.weights[j] - states.weights[start];
      double t =
          (compute_[j] + 4 * (m - 1) * weights / (bandwidth * m) / within) / m;
      value[index(j, m)] = t <= cap ? t : inf;
      origin[index(j, m)] = {static_cast<uint32_t>(start), m};
    }
  std::optional<Phase> searching;
  if (!above_) // those of other levels lie within
    searching.emplace("searching cuts", std::ssize(ends_));
  for (uint32_t k : ends_) {
    if (searching)
      searching->next();
    leaveIdle(k);
    const double done = states.seconds[k] - states.seconds[start];
    const Range range = prefixes(k, done, reach);
    const int left = machines_ - range.low;
    // The stage after this cut receives over it, on at most what is left.
    if (range.low > range.high || 2 * states.cut[k] / (bandwidth * left) > cap)
      continue;
    const Next next = nextAfter(k, done, range);
    if (effort_ && (*effort_ -= static_cast<double>(states.size() - k)) < 0)
      return;
    compute(k, compute_);
    for (uint32_t j : states.above[k]) {
      const double work = states.seconds[j] - states.seconds[k];
      if (work > next.compute * devices)
        break;
      if (isEnd_[j] && compute_[j] <= next.compute && work >= next.work)
        relax(k, j, compute_[j], range, next.cap);
    }
  }
}

/// The machines of prefixes that end at k, which have done so much work, and
/// can still be completed.
Row::Range Row::prefixes(size_t k, double done, double reach) {
  const double left = (reach - states.seconds[k]) / (cap_ * devices);
  const bool isLeft = left > 1e-9;
  Range range{1, machines_ - 1};
  if (isLeft)
    range.high = left < machines_
                     ? machines_ - static_cast<int>(std::ceil(left - 1e-9))
                     : 0;
  range.high = std::min(range.high, machines_ - 1);
  for (int m = 1; m <= machines_; ++m)
    if (double &known = value[index(k, m)]; !isUseful(done, m, known))
      known = inf;
  while (range.low <= range.high && value[index(k, range.low)] > cap_)
    ++range.low;
  while (range.high >= range.low && value[index(k, range.high)] > cap_)
    --range.high;
  return range;
}

/// As many copies as a prefix leaves enough for, at most, or asks for.
Row::Next Row::nextAfter(size_t k, double done, Range range) const {
  Next next{cap_ * (machines_ - range.low), 0, cap_};
  if (copies_ == 0 || planCap_ <= 0)
    return next;
  double most = 0, mostCopies = 0, least = inf;
  for (int m = range.low; m <= range.high; ++m)
    if (const double seconds = value[index(k, m)]; seconds <= cap_) {
      const double copies = std::min(
          std::floor((left_ + done) * (1 + near) / (m * devices * planCap_)),
          1.0 * copies_);
      mostCopies = std::max(mostCopies, copies);
      most = std::max(most, copies * (machines_ - m));
      least = std::min(least, copiesFor(seconds));
    }
  next.cap = std::min(next.cap, planCap_ * (1 + near) * mostCopies);
  next.compute = std::min(next.compute, planCap_ * (1 + near) * most);
  next.work = (least * devices * planCap_ - left_) * (1 - near);
  return next;
}

std::vector<PipeDreamGroup> Row::pieces(size_t start, size_t end,
                                        int machines) const {
  std::vector<PipeDreamGroup> pieces;
  while (true) {
    From from = origin[index(end, machines)];
    if (from.machines == 0) {
      --machines;
      continue;
    }
    pieces.push_back({from.cut, end, from.machines, {}});
    if (from.cut == start)
      break;
    machines -= from.machines;
    end = from.cut;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

double exchangePerByte(const PipeDreamLevel &level, int divisor, int machines) {
  return 4 * (machines - 1) / (level.bandwidth * machines * divisor);
}

void computeBetween(const CutStates &states, size_t k,
                    std::vector<double> &row) {
  for (uint32_t j : states.above[k])
    row[j] = states.seconds[j] - states.seconds[k];
}

double stageSeconds(const CutStates &states,
                    const std::vector<PipeDreamLevel> &levels, size_t level,
                    const PipeDreamGroup &stage, double compute, bool isFirst) {
  const double weights =
      states.weights[stage.after] - states.weights[stage.before];
  const int machines = stage.machines;
  const double bandwidth = levels[level].bandwidth;
  const double exchange = 4 * (machines - 1) * weights / (bandwidth * machines);
  if (isFirst)
    return (compute + exchange / withinOf(levels, level)) / machines;
  const bool atEnd = stage.after + 1 == states.size();
  const double edges = 2 * std::max(states.cut[stage.before],
                                    atEnd ? 0.0 : states.cut[stage.after]);
  return std::max(compute + exchange, edges / bandwidth) / machines;
}

/// The slowest of a component's stages.
static double slowestStage(const CutStates &states,
                           const std::vector<PipeDreamLevel> &levels,
                           size_t level,
                           const std::vector<PipeDreamGroup> &stages) {
  double slowest = 0;
  for (const PipeDreamGroup &stage : stages) {
    const double compute =
        level == 0 ? states.seconds[stage.after] - states.seconds[stage.before]
                   : slowestStage(states, levels, level - 1, stage.within);
    slowest =
        std::max(slowest, stageSeconds(states, levels, level, stage, compute,
                                       &stage == &stages.front()));
  }
  return slowest;
}

double planSeconds(const CutStates &states,
                   const std::vector<PipeDreamLevel> &levels,
                   const PipeDreamPlan &plan) {
  return slowestStage(states, levels, levels.size() - 1, plan.groups);
}

int devicesBelow(const std::vector<PipeDreamLevel> &levels, size_t level) {
  int devices = 1;
  for (size_t l = 0; l < level; ++l)
    devices *= levels[l].machines;
  return devices;
}

/// A component's stages on these devices, one for each of its copies, which
/// its first machine begins with.
static void flatten(PipeDreamPlan &plan,
                    const std::vector<PipeDreamLevel> &levels, size_t level,
                    const std::vector<PipeDreamGroup> &stages,
                    const std::vector<int> &firsts) {
  const int size = devicesBelow(levels, level);
  int machine = 0;
  for (const PipeDreamGroup &stage : stages) {
    std::vector<int> devices;
    for (int first : firsts)
      for (int r = 0; r < stage.machines; ++r)
        devices.push_back(first + (machine + r) * size);
    machine += stage.machines;
    if (level > 0)
      flatten(plan, levels, level - 1, stage.within, devices);
    else
      plan.stages.push_back({stage.before, stage.after,
                             static_cast<int>(devices.size()), devices});
  }
}

void flatten(PipeDreamPlan &plan, const std::vector<PipeDreamLevel> &levels) {
  plan.stages.clear();
  flatten(plan, levels, levels.size() - 1, plan.groups, {0});
}

PipeDreamPlan dataParallelPlan(const CutStates &states,
                               const std::vector<PipeDreamLevel> &levels) {
  std::vector<PipeDreamGroup> groups;
  for (const PipeDreamLevel &level : levels)
    groups = {{0, states.size() - 1, level.machines, std::move(groups)}};
  PipeDreamPlan plan;
  plan.groups = std::move(groups);
  flatten(plan, levels);
  plan.seconds = planSeconds(states, levels, plan);
  return plan;
}

} // namespace pipec::published
