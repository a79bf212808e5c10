#include "compiler/plan/published/EveryPlan.h"

#include "compiler/plan/published/PipeDreamRow.h"

#include <algorithm>
#include <utility>

namespace pipec::published {

static constexpr double near = 1e-9;            ///< of what is as good as equal
static constexpr size_t kMostKnown = 8'000'000; ///< entries of components

EveryPlan::EveryPlan(EverySearch &search)
    : search(search),
      each(devicesBelow(search.levels, search.levels.size() - 1)), row(search),
      share{0} {
  const int all = devicesBelow(search.levels, search.levels.size());
  for (int n = 1; n <= all; ++n)
    share.push_back(share.back() + 1.0 / n);
}

PipeDreamPlan EveryPlan::solve() {
  const Place all{search.levels.size() - 1, search.states.size() - 1, 1, 0};
  const Table table = tabulate(all);
  PipeDreamPlan plan;
  if (search.effort < 0 || table.first[table.at(0, table.devices)] == none)
    return plan;
  const double left = std::exchange(search.effort, none);
  plan.groups = stages(all, table, 0, table.devices);
  search.effort = left;
  flatten(plan, search.levels);
  plan.seconds = planSeconds(search.states, search.levels, plan);
  return plan;
}

EveryPlan::Table EveryPlan::emptyTable(const Place &place) const {
  Table table;
  table.machines = search.levels[place.level].machines;
  table.devices = devicesBelow(search.levels, place.level + 1);
  table.rest.assign(table.at(place.end + 1, 0, 0), none);
  table.restFrom.resize(table.rest.size());
  table.first.assign(table.at(place.end + 1, 0), none);
  table.firstFrom.resize(table.first.size());
  return table;
}

EveryPlan::Table EveryPlan::tabulate(const Place &place) {
  Table table = emptyTable(place);
  search.effort -= static_cast<double>(table.rest.size()) / 8;
  table.rest[table.at(place.end, 0, 0)] = 0;
  for (size_t i = place.end; i > 0 && search.effort >= 0; --i) {
    if (i < place.end)
      close(place, table, i);
    expand(place, table, i);
  }
  for (size_t k = 0; k < place.end; ++k)
    for (int d = 1; d <= table.devices; ++d)
      if (const size_t at = table.at(k, d);
          table.first[at - 1] <= table.first[at]) {
        table.first[at] = table.first[at - 1];
        table.firstFrom[at] = table.firstFrom[at - 1];
      }
  return table;
}

/// What stands before a state must be done by the outermost machines that are
/// left, in time and in memory: a stage of r replicas with n devices from it on
/// keeps no more than r/n of the limit, and that is at most 1/n and 1/(n-1) and
/// so on of its replicas together.
bool EveryPlan::leavesEnough(size_t k, int machines, int devices) const {
  const int left = (search.levels.back().machines - machines) * each;
  const double room =
      share[static_cast<size_t>(std::min<size_t>(
          static_cast<size_t>(devices + left), share.size() - 1))] -
      share[static_cast<size_t>(devices)];
  return search.states.seconds[k] * (1 - near) <= search.cap * left &&
         search.states.kept[k] * (1 - near) <= search.limit * room;
}

/// An entry holds for more machines and devices, too.
void EveryPlan::close(const Place &place, Table &table, size_t k) const {
  for (int m = 1; m <= table.machines; ++m)
    for (int d = 1; d <= table.devices; ++d) {
      const size_t at = table.at(k, m, d);
      for (size_t other : {table.at(k, m - 1, d), at - 1})
        if (table.rest[other] <= table.rest[at]) {
          table.rest[at] = table.rest[other];
          table.restFrom[at] = table.restFrom[other];
        }
    }
  if (!isTop(place))
    return;
  for (int m = 1; m <= table.machines; ++m)
    for (int d = 1; d <= table.devices; ++d)
      if (!leavesEnough(k, m, d))
        table.rest[table.at(k, m, d)] = none;
}

/// Stages that end at i, before each number of devices behind which something
/// is faster than before fewer.
void EveryPlan::expand(const Place &place, Table &table, size_t i) {
  for (int d = 0; d <= table.devices; ++d)
    for (int used = 1; used <= table.machines && search.effort >= 0; ++used)
      beginStages(place, table, i, d, used);
}

void EveryPlan::beginStages(const Place &place, Table &table, size_t i, int d,
                            int used) {
  const CutStates &states = search.states;
  auto isOwn = [&](int m) {
    const size_t at = table.at(i, m, d);
    return table.rest[at] < none &&
           (d == 0 || table.rest[at] < table.rest[at - 1]) &&
           (m == 0 || table.rest[at] < table.rest[table.at(i, m - 1, d)]);
  };
  int fewest = 0;
  while (fewest + used <= table.machines && !isOwn(fewest))
    ++fewest;
  if (fewest + used > table.machines)
    return;
  const bool top = isTop(place);
  const double cap = search.cap * place.copies;
  const Components inner = components(
      inside(place, i, used, d),
      top ? search.cap * each * (table.machines - fewest - used) * (1 + near)
          : none);
  const int most = devicesBelow(search.levels, place.level);
  PipeDreamGroup stage{0, i, used, {}};
  for (size_t k = i; k-- > inner.lowest;) {
    stage.before = k;
    if (inner.best(k, most) == none)
      continue;
    search.effort -= most;
    for (int u = 1; u <= most; ++u) {
      const double compute = inner.best(k, u);
      if (compute == none || inner.best(k, u - 1) <= compute)
        continue;
      const double alone = stageSeconds(states, search.levels, place.level,
                                        stage, compute, true);
      const double next = stageSeconds(states, search.levels, place.level,
                                       stage, compute, false);
      const int devices = d + used * u;
      for (int m = fewest; m + used <= table.machines; ++m) {
        if (!isOwn(m))
          continue;
        --search.effort;
        const double behind = table.rest[table.at(i, m, d)];
        auto offer = [&](double &known, From &from, double seconds) {
          seconds = std::max(seconds, behind);
          if (seconds <= cap && seconds < known) {
            known = seconds;
            from = {static_cast<uint32_t>(i), used, u, m};
          }
        };
        if (const size_t at = table.at(k, devices); !top || k == 0)
          offer(table.first[at], table.firstFrom[at], alone);
        if (const size_t at = table.at(k, m + used, devices); k > 0)
          offer(table.rest[at], table.restFrom[at], next);
      }
    }
  }
}

EveryPlan::Components EveryPlan::components(const Place &place, double reach) {
  const size_t width =
      static_cast<size_t>(devicesBelow(search.levels, place.level + 1)) + 1;
  const bool isAskedOnce = place.level + 2 == search.levels.size();
  if (isAskedOnce && place.level == 0) {
    row.solve(place.end, place.copies, place.after, reach);
    return {nullptr, &row, width, row.lowestStart()};
  }
  if (isAskedOnce) {
    once = tabulate(place).first;
    return {&once, nullptr, width, 0};
  }
  auto [at, isNew] = known.try_emplace(place);
  std::vector<double> &best = at->second;
  if (isNew && place.level > 0) {
    best = tabulate(place).first;
  } else if (isNew) {
    row.solve(place.end, place.copies, place.after, none);
    best.assign((place.end + 1) * width, none);
    for (size_t k = row.lowestStart(); k < place.end; ++k)
      for (size_t d = 1; d < width; ++d)
        best[k * width + d] = row.best(k, static_cast<int>(d));
  }
  if (isNew && (entries += best.size()) > kMostKnown)
    search.effort = -none;
  return {&best, nullptr, width, 0};
}

std::vector<PipeDreamGroup> EveryPlan::stages(const Place &place, size_t start,
                                              int devices) {
  if (place.level > 0)
    return stages(place, tabulate(place), start, devices);
  row.solve(place.end, place.copies, place.after, none);
  return row.stages(start, devices);
}

std::vector<PipeDreamGroup> EveryPlan::stages(const Place &place,
                                              const Table &table, size_t start,
                                              int devices) {
  std::vector<PipeDreamGroup> stages;
  int m = 0, d = devices;
  for (size_t k = start; k != place.end;) {
    From from;
    if (k == start) { // what it was found with
      while (table.first[table.at(k, d - 1)] == table.first[table.at(k, d)])
        --d;
      from = table.firstFrom[table.at(k, d)];
    } else {
      auto seconds = [&](int machines, int devices) {
        return table.rest[table.at(k, machines, devices)];
      };
      while (seconds(m - 1, d) == seconds(m, d) ||
             seconds(m, d - 1) == seconds(m, d))
        --(seconds(m - 1, d) == seconds(m, d) ? m : d);
      from = table.restFrom[table.at(k, m, d)];
    }
    d -= from.machines * from.devices;
    m = from.behind;
    PipeDreamGroup stage{k, from.end, from.machines, {}};
    stage.within = this->stages(inside(place, from.end, from.machines, d), k,
                                from.devices);
    stages.push_back(std::move(stage));
    k = from.end;
  }
  return stages;
}

PipeDreamPlan searchEvery(const CutStates &states,
                          const std::vector<PipeDreamLevel> &levels,
                          double limit, double cap, SearchEffort &effort) {
  EverySearch search{states, levels, limit, cap, effort.left};
  const double entries = static_cast<double>(states.size()) *
                         (levels.back().machines + 1) *
                         (devicesBelow(levels, levels.size()) + 1);
  constexpr double kMostEntries = 2e6;
  effort.isEvery = false;
  if (entries > kMostEntries)
    return {};
  PipeDreamPlan plan = EveryPlan(search).solve();
  effort.isEvery = search.effort >= 0;
  effort.left = std::max(search.effort, 0.0);
  return plan;
}

} // namespace pipec::published
