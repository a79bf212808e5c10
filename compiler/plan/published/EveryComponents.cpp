#include "compiler/plan/published/EveryComponents.h"

#include "compiler/plan/published/PipeDreamRow.h"

#include <algorithm>
#include <utility>

namespace pipec::published {

static constexpr double near = 1e-9;            ///< of what is as good as equal
static constexpr size_t kMostKnown = 8'000'000; ///< entries of components

void EveryComponents::solve(const AskedComponents &asked) {
  if (isRow())
    return row.solve(asked);
  Table table = tabulate(top(), asked);
  last = {table.lowest, static_cast<size_t>(table.devices) + 1,
          std::move(table.first)};
}

EveryComponents::Table EveryComponents::emptyTable(size_t level, size_t lowest,
                                                   size_t end) const {
  Table table{level,
              lowest,
              search.levels[level].machines,
              devicesBelow(search.levels, level + 1),
              {},
              {},
              {},
              {}};
  table.rest.assign(table.at(end + 1, 0, 0), none);
  table.restFrom.resize(table.rest.size());
  table.first.assign(table.at(end + 1, 0), none);
  table.firstFrom.resize(table.first.size());
  return table;
}

EveryComponents::Table EveryComponents::tabulate(size_t level,
                                                 const AskedComponents &asked) {
  const ComponentBounds bounds(search, asked,
                               devicesBelow(search.levels, level + 1));
  Table table = emptyTable(level, bounds.lowest(), asked.end);
  search.effort -= static_cast<double>(table.rest.size()) / 8;
  table.rest[table.at(asked.end, 0, 0)] = 0;
  for (size_t i = asked.end; i > bounds.lowest() && search.effort >= 0; --i) {
    if (i < asked.end)
      close(table, asked, i, bounds.most(i));
    expand(asked, bounds, table, i);
  }
  for (size_t k = bounds.lowest(); k < asked.end; ++k)
    for (int d = 1; d <= table.devices; ++d)
      if (const size_t at = table.at(k, d);
          table.first[at - 1] <= table.first[at]) {
        table.first[at] = table.first[at - 1];
        table.firstFrom[at] = table.firstFrom[at - 1];
      }
  return table;
}

/// An entry holds for more machines and devices, too. Machines that are left
/// before it must do the work up to a start that is wanted.
void EveryComponents::close(Table &table, const AskedComponents &asked,
                            size_t k, double most) const {
  for (int m = 1; m <= table.machines; ++m)
    for (int d = 1; d <= table.devices; ++d) {
      const size_t at = table.at(k, m, d);
      for (size_t other : {table.at(k, m - 1, d), at - 1})
        if (table.rest[other] <= table.rest[at]) {
          table.rest[at] = table.rest[other];
          table.restFrom[at] = table.restFrom[other];
        }
    }
  const double before = (search.states.seconds[k] - asked.reach) * (1 - near);
  const int each = table.devices / table.machines;
  for (int m = 1; m <= table.machines; ++m)
    if (before > most * each * (table.machines - m))
      std::fill_n(table.rest.begin() + static_cast<long>(table.at(k, m, 0)),
                  table.devices + 1, none);
}

/// Stages that end at i, before each number of devices behind which something
/// is faster than before fewer.
void EveryComponents::expand(const AskedComponents &asked,
                             const ComponentBounds &bounds, Table &table,
                             size_t i) {
  for (int d = 0; d <= table.devices; ++d)
    for (int used = 1; used <= table.machines && search.effort >= 0; ++used)
      beginStages(asked, bounds, table, i, d, used);
}

/// In a stage on so many machines before so many devices of each copy. As far
/// as those are copies of nothing else, times are known to be as good as equal.
AskedComponents EveryComponents::inside(size_t level,
                                        const AskedComponents &asked,
                                        size_t end, int used,
                                        int behind) const {
  const PipeDreamLevel &at = search.levels[level];
  const double least =
      exchangePerByte(at, search.levels[level - 1].machines, used);
  return {end,
          asked.copies * used,
          asked.after + asked.copies * behind,
          exchangePerByte(at, 1, used),
          least,
          least,
          asked.copies == 1 ? asked.floor : 0};
}

void EveryComponents::beginStages(const AskedComponents &asked,
                                  const ComponentBounds &bounds, Table &table,
                                  size_t i, int d, int used) {
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
  const Best &inner =
      components(table.level - 1, inside(table.level, asked, i, used, d), used);
  const int each = devicesBelow(search.levels, table.level);
  PipeDreamGroup stage{0, i, used, {}};
  for (size_t k = i; k-- > std::max(table.lowest, inner.lowest);) {
    stage.before = k;
    if (inner.best(k, each) == none)
      continue;
    search.effort -= each;
    const double most = bounds.most(k);
    const bool isStart = states.seconds[k] * (1 - near) <= asked.reach;
    double slower = none;
    for (int u = 1; u <= each; ++u) {
      const double compute = inner.best(k, u);
      if (compute >= slower)
        continue;
      slower = compute;
      const double alone = stageSeconds(states, search.levels, table.level,
                                        stage, compute, true);
      const double next = stageSeconds(states, search.levels, table.level,
                                       stage, compute, false);
      const int devices = d + used * u;
      for (int m = fewest; m + used <= table.machines; ++m) {
        if (!isOwn(m))
          continue;
        --search.effort;
        const double behind =
            std::max(table.rest[table.at(i, m, d)], bounds.floor());
        auto offer = [&](double &known, From &from, double seconds) {
          seconds = std::max(seconds, behind);
          if (seconds <= most && seconds < known) {
            known = seconds;
            from = {static_cast<uint32_t>(i), used, u, m};
          }
        };
        if (const size_t at = table.at(k, devices); isStart)
          offer(table.first[at], table.firstFrom[at], alone);
        if (const size_t at = table.at(k, m + used, devices); k > 0)
          offer(table.rest[at], table.restFrom[at], next);
      }
    }
  }
}

const EveryComponents::Best &
EveryComponents::components(size_t level, const AskedComponents &asked,
                            int used) {
  auto [at, isNew] =
      known.try_emplace({level, asked.end, asked.copies, asked.after, used});
  Best &best = at->second;
  if (!isNew)
    return best;
  best.width = static_cast<size_t>(devicesBelow(search.levels, level + 1)) + 1;
  if (level > 0) {
    Table table = tabulate(level, asked);
    best.lowest = table.lowest;
    best.seconds = std::move(table.first);
  } else {
    row.solve(asked);
    best.lowest = row.lowestStart();
    best.seconds.assign((asked.end - best.lowest + 1) * best.width, none);
    for (size_t k = best.lowest; k < asked.end; ++k)
      for (size_t d = 1; d < best.width; ++d)
        best.seconds[(k - best.lowest) * best.width + d] =
            row.best(k, static_cast<int>(d));
  }
  if ((entries += best.seconds.size()) > kMostKnown)
    search.effort = -none;
  return best;
}

std::vector<PipeDreamGroup>
EveryComponents::stages(const AskedComponents &asked, size_t start,
                        int devices) {
  return stages(top(), asked, start, devices);
}

/// The fastest, of starts anywhere.
std::vector<PipeDreamGroup> EveryComponents::stages(size_t level,
                                                    AskedComponents asked,
                                                    size_t start, int devices) {
  asked.floor = 0;
  asked.reach = none;
  if (level > 0)
    return stages(asked, tabulate(level, asked), start, devices);
  row.solve(asked);
  return row.stages(start, devices);
}

std::vector<PipeDreamGroup>
EveryComponents::stages(const AskedComponents &asked, const Table &table,
                        size_t start, int devices) {
  std::vector<PipeDreamGroup> stages;
  int m = 0, d = devices;
  for (size_t k = start; k != asked.end;) {
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
    stage.within = this->stages(
        table.level - 1, inside(table.level, asked, from.end, from.machines, d),
        k, from.devices);
    stages.push_back(std::move(stage));
    k = from.end;
  }
  return stages;
}

} // namespace pipec::published
