#include "compiler/plan/published/ComponentsWithin.h"

#include <algorithm>
#include <cmath>

namespace pipec::published {

static constexpr double inf = std::numeric_limits<double>::infinity();

ComponentsWithin::ComponentsWithin(const CutStates &states,
                                   const std::vector<PipeDreamLevel> &levels,
                                   double limit)
    : states(states), levels(levels), limit(limit), row(states, levels, 0) {}

void ComponentsWithin::solve(size_t k, double cap, int servers, int after,
                             double reach) {
  const size_t level = levels.size() - 2;
  cap_ = cap;
  effort_ = 0;
  solved = {level, k, servers, after * devicesBelow(levels, level + 1)};
  if (level == 0) {
    row.exchangeAbove(exchangePerByte(
        levels.back(), k == 0 ? levels[level].machines : 1, servers));
    return solveRow(solved, reach);
  }
  cap_ *= 1 + 1e-9; // what is known may be from a larger one
  table = tabulate(solved);
  ends_.clear();
  for (uint32_t j : states.above[k])
    if (best(j) < inf)
      ends_.push_back(j);
}

const std::vector<uint32_t> &ComponentsWithin::ends() const {
  return solved.level == 0 ? row.ends() : ends_;
}

double ComponentsWithin::best(size_t end) const {
  const int machines = levels[solved.level].machines;
  return solved.level == 0 ? row.best(end, machines)
                           : table.value[index(solved.level, end, machines)];
}

std::vector<PipeDreamGroup> ComponentsWithin::stages(size_t end) {
  if (solved.level == 0)
    return row.pieces(solved.start, end, levels[0].machines);
  return stagesOf(solved, table, end);
}

void ComponentsWithin::solveRow(const Place &place, double reach) {
  row.limit({limit, place.copies, place.after});
  row.solve(place.start, cap_ * place.copies, reach,
            [&](size_t from, std::vector<double> &compute) {
              computeBetween(states, from, compute);
            });
  const auto ends = static_cast<double>(row.ends().size());
  effort_ += ends * ends * levels[0].machines;
}

/// In a stage from k on so many machines, before `left` others of the place's.
ComponentsWithin::Place ComponentsWithin::below(const Place &place, size_t k,
                                                int used, int left) const {
  return {place.level - 1, k, place.copies * used,
          place.after + place.copies * left * devicesBelow(levels, place.level)};
}

/// All of it, which later searches below smaller caps may use as well.
const std::vector<double> &ComponentsWithin::bestOf(const Place &place) {
  auto [at, isNew] = known.try_emplace(place);
  if (!isNew)
    return at->second;
  std::vector<double> &best = at->second;
  best.assign(states.size(), inf);
  const int machines = levels[place.level].machines;
  if (place.level == 0) {
    solveRow(place, 0);
    for (uint32_t j : row.ends())
      best[j] = row.best(j, machines);
    return best;
  }
  const Table own = tabulate(place);
  for (uint32_t j : states.above[place.start])
    best[j] = own.value[index(place.level, j, machines)];
  return best;
}

ComponentsWithin::Table ComponentsWithin::tabulate(const Place &place) {
  const int machines = levels[place.level].machines;
  Table table;
  table.value.assign(index(place.level, states.size(), 0), inf);
  table.origin.resize(table.value.size());
  table.value[index(place.level, place.start, 0)] = 0;
  expand(place, table, place.start, 0);
  for (uint32_t k : states.above[place.start])
    for (int m = 1; m <= machines; ++m) {
      const size_t at = index(place.level, k, m);
      if (m > 1 && table.value[at - 1] < table.value[at])
        table.value[at] = table.value[at - 1], table.origin[at] = {};
      if (m < machines && table.value[at] < inf)
        expand(place, table, k, m);
    }
  return table;
}

/// Stages from k behind `before` machines.
void ComponentsWithin::expand(const Place &place, Table &table, size_t k,
                              int before) {
  const int machines = levels[place.level].machines;
  const double cap = cap_ * place.copies;
  const double prefix = table.value[index(place.level, k, before)];
  const bool isFirst = k == place.start;
  for (int used = 1; before + used <= machines; ++used) {
    if (!isFirst && 2 * states.cut[k] / levels[place.level].bandwidth >
                        cap * used) // it receives over that cut
      continue;
    const std::vector<double> &compute =
        bestOf(below(place, k, used, machines - before - used));
    effort_ += static_cast<double>(states.above[k].size());
    for (uint32_t j : states.above[k]) {
      if (compute[j] == inf)
        continue;
      const double t = std::max(
          prefix, stageSeconds(states, levels, place.level,
                               {k, j, used, {}}, compute[j], isFirst));
      const size_t at = index(place.level, j, before + used);
      if (t <= cap && t < table.value[at]) {
        table.value[at] = t;
        table.origin[at] = {static_cast<uint32_t>(k), used};
      }
    }
  }
}

std::vector<PipeDreamGroup>
ComponentsWithin::stagesOf(const Place &place, const Table &table, size_t end) {
  std::vector<PipeDreamGroup> stages;
  const int all = levels[place.level].machines;
  for (int machines = all; end != place.start;) {
    const From from = table.origin[index(place.level, end, machines)];
    if (from.machines == 0) {
      --machines;
      continue;
    }
    PipeDreamGroup stage{from.cut, end, from.machines, {}};
    const Place inner =
        below(place, from.cut, from.machines, all - machines);
    if (inner.level == 0) {
      solveRow(inner, 0);
      stage.within = row.pieces(inner.start, end, levels[0].machines);
    } else {
      stage.within = stagesOf(inner, tabulate(inner), end);
    }
    stages.insert(stages.begin(), std::move(stage));
    end = from.cut;
    machines -= from.machines;
  }
  return stages;
}

} // namespace pipec::published
