#include "compiler/plan/published/PipeDreamSearch.h"

#include "compiler/plan/published/PipeDreamRow.h"
#include "compiler/plan/published/PipeDreamWithin.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::published {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

class TwoLevels {
public:
  TwoLevels(const CutStates &states, const PipeDreamLevel &inner,
            const PipeDreamLevel &outer)
      : states(states), inner(inner), outer(outer), row(states, inner, 1) {}

  PipeDreamPlan solve(double incumbent);

private:
  void solveInner(size_t k, double cap, double reach, int servers);
  void innerFrom(size_t k, double cap, std::vector<double> &best);

  const CutStates &states;
  const PipeDreamLevel inner, outer;
  Row row;
};

/// The inner level for an outer stage on `servers`, within as many caps.
void TwoLevels::solveInner(size_t k, double cap, double reach, int servers) {
  row.exchangeAbove(
      exchangePerByte(outer, k == 0 ? inner.machines : 1, servers));
  row.solve(k, cap * servers, reach,
            [&](size_t from, std::vector<double> &compute) {
              computeBetween(states, from, compute);
            });
}

/// The inner level's best with all its machines, from k to every state above,
/// for an outer stage on any number of servers. It must leave no more than the
/// servers after it can do.
void TwoLevels::innerFrom(size_t k, double cap, std::vector<double> &best) {
  for (int servers = 1; servers <= outer.machines; ++servers) {
    if (2 * states.cut[k] > cap * outer.bandwidth * servers)
      continue; // it receives over that cut
    const int after = outer.machines - servers;
    solveInner(k, cap,
               states.seconds.back() * (1 - 1e-9) -
                   cap * inner.machines * after,
               servers);
    for (uint32_t j : row.ends())
      best[j] = std::min(best[j], row.best(j, inner.machines));
  }
}

PipeDreamPlan TwoLevels::solve(double incumbent) {
  Row outerRow(states, outer, inner.machines);
  double cap = incumbent * (1 + 1e-12);
  size_t end = states.size() - 1;
  outerRow.solve(0, cap, states.seconds[end],
                 [&](size_t from, std::vector<double> &compute) {
                   for (uint32_t j : states.above[from])
                     compute[j] = inf;
                   innerFrom(from, cap, compute);
                 });
  PipeDreamPlan plan;
  plan.seconds = outerRow.best(end, outer.machines);
  if (!std::isfinite(plan.seconds))
    return plan;
  for (const Row::Piece &piece : outerRow.pieces(0, end, outer.machines)) {
    solveInner(piece.before, cap, states.seconds[piece.after] * (1 - 1e-9),
               piece.machines);
    append(plan, piece, inner.machines,
           row.pieces(piece.before, piece.after, inner.machines));
  }
  return plan;
}

PipeDreamPlan oneLevel(const CutStates &states, const PipeDreamLevel &level,
                       double incumbent) {
  Row row(states, level, 1);
  size_t end = states.size() - 1;
  row.solve(0, incumbent * (1 + 1e-12), states.seconds[end],
            [&](size_t from, std::vector<double> &compute) {
              computeBetween(states, from, compute);
            });
  PipeDreamPlan plan;
  plan.seconds = row.best(end, level.machines);
  if (std::isfinite(plan.seconds))
    append(plan, {0, end, 1}, level.machines,
           row.pieces(0, end, level.machines));
  return plan;
}

PipeDreamPlan solveLevels(const CutStates &states,
                          const std::vector<PipeDreamLevel> &levels,
                          double incumbent) {
  if (levels.size() == 1)
    return oneLevel(states, levels[0], incumbent);
  return TwoLevels(states, levels[0], levels[1]).solve(incumbent);
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

PipeDreamPlan searchPipeDream(const CutStates &states,
                              const std::vector<PipeDreamLevel> &levels,
                              double limit, double incumbent) {
  return limit > 0 ? searchWithin(states, levels, limit, incumbent)
                   : searchFreely(states, levels, incumbent);
}

} // namespace pipec::published
