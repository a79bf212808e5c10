#include "compiler/plan/published/EveryComponents.h"

#include "compiler/plan/published/PipeDreamRow.h"
#include "support/Failure.h"

#include <algorithm>
#include <utility>

namespace pipec::published {

static constexpr double near = 1e-9;            ///< of what is as good as equal
static constexpr size_t kMostKnown = 8'000'000; ///< entries of components

void EveryComponents::solve(const AskedComponents &asked) {
  if (isRow())
    return row.solve(asked);
  Table table = tabulate(top(), asked, false);
  last = {table.lowest, static_cast<size_t>(table.devices) + 1,
          std::move(table.first)};
}

EveryComponents::Table EveryComponents::tableFor(size_t level,
                                                 size_t lowest) const {
  return {level,
          lowest,
          search.levels[level].machines,
          devicesBelow(search.levels, level + 1),
          {},
          {},
          {},
          {}};
}

void EveryComponents::allocate(Table &table, size_t end, bool isUnwound) {
  table.rest.assign(table.at(end + 1, 0, 0), none);
  table.first.assign(table.at(end + 1, 0), none);
  if (isUnwound) {
    table.restFrom.resize(table.rest.size());
    table.firstFrom.resize(table.first.size());
  }
}

/// Charged for before it is there: a table of many machines and devices takes
/// a megabyte and more for each state.
bool EveryComponents::holds(const Table &table, const AskedComponents &asked,
                            bool isUnwound) {
  search.effort -= static_cast<double>(table.at(asked.end + 1, 0, 0)) / 8;
  if (isCapped && held + table.bytes(asked.end, isUnwound) > search.mostHeld)
    search.effort = -none;
  return search.effort >= 0;
}

EveryComponents::Table EveryComponents::tabulate(size_t level,
                                                 const AskedComponents &asked,
                                                 bool isUnwound) {
  const ComponentBounds bounds(search, asked,
                               devicesBelow(search.levels, level + 1));
  Table table = tableFor(level, bounds.lowest());
  if (!holds(table, asked, isUnwound)) {
    table.lowest = asked.end; // no starts
    return table;
  }
  const size_t bytes = table.bytes(asked.end, isUnwound);
  held += bytes;
  allocate(table, asked.end, isUnwound);
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
        if (isUnwound)
          table.firstFrom[at] = table.firstFrom[at - 1];
      }
  held -= bytes;
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
          if (!table.restFrom.empty())
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
        auto offer = [&](std::vector<double> &known, std::vector<From> &from,
                         size_t at, double seconds) {
          seconds = std::max(seconds, behind);
          if (seconds <= most && seconds < known[at]) {
            known[at] = seconds;
            if (!from.empty())
              from[at] = {static_cast<uint32_t>(i), used, u, m};
          }
        };
        if (isStart)
          offer(table.first, table.firstFrom, table.at(k, devices), alone);
        if (k > 0)
          offer(table.rest, table.restFrom, table.at(k, m + used, devices),
                next);
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
    Table table = tabulate(level, asked, false);
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
  held += best.seconds.size() * sizeof(double);
  if ((entries += best.seconds.size()) > kMostKnown && isCapped)
    search.effort = -none;
  return best;
}

std::vector<PipeDreamGroup>
EveryComponents::stages(const AskedComponents &asked, size_t start,
                        int devices) {
  return stages(top(), asked, start, devices);
}

/// Of no other start.
std::vector<PipeDreamGroup> EveryComponents::stages(size_t level,
                                                    AskedComponents asked,
                                                    size_t start, int devices) {
  asked.reach = search.states.seconds[start];
  if (level > 0) {
    const Table table = tabulate(level, asked, true);
    return search.effort < 0 ? std::vector<PipeDreamGroup>()
                             : stages(asked, table, start, devices);
  }
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
      while (d > 0 &&
             table.first[table.at(k, d - 1)] == table.first[table.at(k, d)])
        --d;
      from = table.firstFrom[table.at(k, d)];
    } else {
      auto seconds = [&](int machines, int devices) {
        return table.rest[table.at(k, machines, devices)];
      };
      auto isIdle = [&](int machines, int devices) {
        return machines >= 0 && devices >= 0 &&
               seconds(machines, devices) == seconds(m, d);
      };
      while (isIdle(m - 1, d) || isIdle(m, d - 1))
        --(isIdle(m - 1, d) ? m : d);
      from = table.restFrom[table.at(k, m, d)];
    }
    if (from.end <= k)
      throw Failure(Exit::Internal, "a plan's stages were not found again");
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
