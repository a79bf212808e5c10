#include "compiler/plan/published/PipeDreamSearch.h"

#include "compiler/plan/published/PipeDreamRow.h"
#include "compiler/plan/published/PipeDreamWithin.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::published {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// One row a level; only the outermost starts at the model's first state alone.
class Levels {
public:
  Levels(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
         double *effort)
      : states(states), levels(levels), known(levels.size()), effort(effort) {
    for (size_t l = 0; l < levels.size(); ++l) {
      rows.emplace_back(states, levels, l);
      rows.back().limit(effort);
    }
  }

  PipeDreamPlan solve(double incumbent);

private:
  void solve(size_t level, size_t k);
  void compute(size_t level, size_t k, std::vector<double> &row);
  std::vector<PipeDreamGroup> unwind(size_t level, size_t before, size_t after);

  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  std::vector<Row> rows;
  /// Of each level but the two outermost, whose rows are asked for once: a
  /// component's best from a state to every other, where it was asked for.
  std::vector<std::vector<std::vector<double>>> known;
  double *const effort;     ///< none: it comes to its end
  std::vector<double> caps; ///< of what a component takes
  double cap = 0;
};

/// The row of a component that starts at k.
void Levels::solve(size_t level, size_t k) {
  const bool isTop = level + 1 == levels.size();
  rows[level].solve(k, caps[level], isTop ? states.seconds.back() : 0,
                    [&, level](size_t from, std::vector<double> &row) {
                      compute(level, from, row);
                    });
}

/// What one machine of a level takes from k to every state above.
void Levels::compute(size_t level, size_t k, std::vector<double> &row) {
  if (level == 0)
    return computeBetween(states, k, row);
  std::vector<double> none;
  const bool isKept = level + 1 < levels.size();
  std::vector<double> &best = isKept ? known[level][k] : none;
  if (!best.empty()) {
    row = best;
    return;
  }
  Row &below = rows[level - 1];
  solve(level - 1, k);
  for (uint32_t j : states.above[k])
    row[j] = inf;
  for (uint32_t j : below.ends())
    row[j] = below.best(j, levels[level - 1].machines);
  if (isKept)
    best = row;
}

std::vector<PipeDreamGroup> Levels::unwind(size_t level, size_t before,
                                           size_t after) {
  std::vector<PipeDreamGroup> groups =
      rows[level].pieces(before, after, levels[level].machines);
  for (PipeDreamGroup &group : groups)
    if (level > 0) {
      solve(level - 1, group.before);
      group.within = unwind(level - 1, group.before, group.after);
    }
  return groups;
}

PipeDreamPlan Levels::solve(double incumbent) {
  cap = incumbent * (1 + 1e-12);
  const double spare =
      cap * devicesBelow(levels, levels.size()) - states.seconds.back();
  caps.assign(levels.size(), cap);
  int copies = 1;
  for (size_t l = levels.size(); l-- > 0;) {
    const bool isTop = l + 1 == levels.size();
    caps[l] = cap * copies;
    rows[l].copies(copies, cap, spare, isTop ? nullptr : &rows[l + 1]);
    if (l > 0 && !isTop)
      known[l].assign(states.size(), {});
    copies *= levels[l].machines;
  }
  const size_t end = states.size() - 1;
  solve(levels.size() - 1, 0);
  PipeDreamPlan plan;
  if (effort && *effort < 0)
    return plan;
  plan.seconds = rows.back().best(end, levels.back().machines);
  if (std::isfinite(plan.seconds)) {
    for (Row &row : rows)
      row.limit(nullptr);
    plan.groups = unwind(levels.size() - 1, 0, end);
    flatten(plan, levels);
  }
  return plan;
}

PipeDreamPlan solveLevels(const CutStates &states,
                          const std::vector<PipeDreamLevel> &levels,
                          double incumbent, double *effort) {
  return Levels(states, levels, effort).solve(incumbent);
}

} // namespace

std::vector<PipeDreamLevel>
levelsOf(const std::vector<PipeDreamLevel> &outermostFirst) {
  std::vector<PipeDreamLevel> levels;
  for (size_t l = outermostFirst.size(); l-- > 0;)
    if (const PipeDreamLevel &level = outermostFirst[l];
        level.machines > 1 || (!levels.empty() && levels.back().machines > 1))
      levels.push_back(level);
  while (!levels.empty() && levels.back().machines == 1)
    levels.pop_back();
  if (levels.empty())
    levels.push_back({1, outermostFirst.back().bandwidth});
  return levels;
}

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

/// A search is quick below a cap near its result. Half the states give a plan
/// to stay below; from there caps grow from what no plan can beat. Where the
/// effort is spent before, that of the half, if any.
static PipeDreamPlan searchFreely(const CutStates &states,
                                  const std::vector<PipeDreamLevel> &levels,
                                  double incumbent, double *effort) {
  constexpr size_t few = 128;
  incumbent = std::min(incumbent, dataParallelSeconds(states, levels));
  if (states.size() <= few)
    return solveLevels(states, levels, incumbent, effort);
  const std::vector<size_t> half = spread(states, states.size() / 2);
  PipeDreamPlan known =
      searchFreely(states.only(half), levels, incumbent, effort);
  renumber(known, half);
  incumbent = std::min(incumbent, known.seconds);
  auto better = [&](PipeDreamPlan plan) {
    return plan.seconds <= known.seconds ? plan : known;
  };
  double least = states.seconds.back();
  for (const PipeDreamLevel &level : levels)
    least /= level.machines;
  for (double gap = 0.005; least * (1 + 2 * gap) < incumbent && gap < 1;
       gap *= 2) {
    PipeDreamPlan plan = solveLevels(states, levels, least * (1 + gap), effort);
    if (std::isfinite(plan.seconds) || (effort && *effort < 0))
      return better(std::move(plan));
  }
  return better(solveLevels(states, levels, incumbent, effort));
}

PipeDreamPlan searchPipeDream(const CutStates &states,
                              const std::vector<PipeDreamLevel> &levels,
                              double limit, double incumbent,
                              SearchEffort *effort) {
  if (limit <= 0) {
    PipeDreamPlan plan = searchFreely(states, levels, incumbent,
                                      effort ? &effort->left : nullptr);
    if (effort && effort->left < 0)
      effort->isEvery = false;
    return plan;
  }
  SearchEffort usual;
  return searchWithin(states, levels, limit, incumbent,
                      effort ? *effort : usual);
}

} // namespace pipec::published
