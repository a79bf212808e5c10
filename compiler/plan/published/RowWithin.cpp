#include "compiler/plan/published/RowWithin.h"

#include "compiler/plan/published/PipeDreamRow.h"

#include <algorithm>

namespace pipec::published {

static constexpr double near = 1e-9; ///< of what is as good as equal

EverySearch::EverySearch(const CutStates &states,
                         const std::vector<PipeDreamLevel> &levels,
                         double limit, double effort)
    : states(states), levels(levels), limit(limit), floor(0), cap(0),
      effort(effort), share{0}, mostWeights(states.weights),
      mostKept(states.kept) {
  const int all = devicesBelow(levels, levels.size());
  for (int n = 1; n <= all; ++n)
    share.push_back(share.back() + 1.0 / n);
  for (size_t k = 1; k < states.size(); ++k) {
    mostWeights[k] = std::max(mostWeights[k], mostWeights[k - 1]);
    mostKept[k] = std::max(mostKept[k], mostKept[k - 1]);
  }
}

ComponentBounds::ComponentBounds(const EverySearch &search,
                                 const AskedComponents &asked, int devices)
    : states(search.states), end(asked.end),
      cap(search.cap * asked.copies * (1 + near)), lowest_(asked.end),
      floor_(asked.floor * asked.copies) {
  const bool mayBeFirst = states.seconds[end] / devices +
                              asked.firstExchange * states.weights[end] <=
                          cap;
  perByte = mayBeFirst ? asked.firstExchange : asked.exchange;
  const double room =
      search.room(asked.copies * devices, asked.after) * (1 + near);
  while (lowest_ > 0 &&
         (states.seconds[end] - states.seconds[lowest_ - 1]) / devices +
                 perByte *
                     (states.weights[end] - search.mostWeights[lowest_ - 1]) <=
             cap &&
         states.kept[end] - search.mostKept[lowest_ - 1] <= room)
    --lowest_;
  if (asked.mostExchange > 0 && floor_ > 0)
    floor_ -= asked.mostExchange *
              (states.weights[end] -
               *std::min_element(
                   states.weights.begin() + static_cast<long>(lowest_),
                   states.weights.begin() + static_cast<long>(end + 1)));
}

RowWithin::RowWithin(EverySearch &search)
    : search(search), machines(search.levels[0].machines),
      first(index(search.states.size(), 0), none), rest(first),
      firstFrom(first.size()), restFrom(first.size()),
      fewest(search.states.size()),
      times(index(static_cast<size_t>(machines), 0)), exchange{0}, part{0} {
  for (double bytes : search.states.cut)
    crossing.push_back(2 * bytes / search.levels[0].bandwidth);
  crossing.back() = 0;
  for (int used = 1; used <= machines; ++used) {
    exchange.push_back(exchangePerByte(search.levels[0], 1, used));
    part.push_back(1.0 / used);
  }
}

void RowWithin::solve(const AskedComponents &asked) {
  const ComponentBounds bounds(search, asked, machines);
  end = asked.end;
  lowest = bounds.lowest();
  floor = bounds.floor();
  for (int m = 0; m < machines; ++m)
    for (int used = 1; m + used <= machines; ++used) {
      const int replicas = asked.copies * used;
      times[index(static_cast<size_t>(m), used)] =
          (asked.after + asked.copies * m + 2 * replicas - 1) / replicas;
    }
  std::fill(first.begin() + static_cast<long>(index(lowest, 0)),
            first.begin() + static_cast<long>(index(end + 1, 0)), none);
  std::fill(rest.begin() + static_cast<long>(index(lowest, 0)),
            rest.begin() + static_cast<long>(index(end + 1, 0)), none);
  rest[index(end, 0)] = 0;
  fewest[end] = 0;
  search.effort -= static_cast<double>(index(end - lowest, 0)) / 2 + machines;
  for (size_t k = end; k-- > lowest;)
    start(k, bounds.most(k), asked.reach);
}

void RowWithin::start(size_t k, double most, double reach) {
  const CutStates &states = search.states;
  fewest[k] = machines;
  if (states.seconds[end] - states.seconds[k] > most * machines)
    return;
  Begun stage{k, k, most, states.seconds[k] * (1 - near) <= reach, 1};
  for (uint32_t j : states.above[k]) {
    const double work = (states.seconds[j] - states.seconds[k]) * (1 - near);
    if (j > end || work > most * machines)
      break;
    --search.effort;
    while (work > most * stage.least)
      ++stage.least;
    stage.j = j;
    if (fewest[j] + stage.least <= machines &&
        states.kept[j] - states.kept[k] <= search.limit)
      begin(stage);
  }
  close(k, most, reach);
}

/// The stage before what is known from its end on.
void RowWithin::begin(const Begun &stage) {
  const CutStates &states = search.states;
  const size_t k = stage.k, j = stage.j;
  const double work = states.seconds[j] - states.seconds[k];
  const double kept = states.kept[j] - states.kept[k];
  const double weights = states.weights[j] - states.weights[k];
  const double edges = std::max(crossing[k], crossing[j]);
  double before = none;
  for (int m = fewest[j]; m + stage.least <= machines; ++m) {
    const double behind = rest[index(j, m)];
    if (behind > stage.most || behind >= before)
      continue;
    before = behind;
    const double least = std::max(behind, floor);
    const double *of = &times[index(static_cast<size_t>(m), 0)];
    for (int used = stage.least; m + used <= machines; ++used) {
      --search.effort;
      const auto u = static_cast<size_t>(used);
      if (kept * of[u] > search.limit)
        continue;
      const double alone = // the first pays for no cut
          (work + exchange[u] * weights) * part[u];
      const double next = std::max(alone, edges * part[u]);
      auto offer = [&](std::vector<double> &values, std::vector<From> &from,
                       double seconds) {
        double &known = values[index(k, m + used)];
        if (seconds <= stage.most && seconds < known) {
          known = seconds;
          from[index(k, m + used)] = {static_cast<uint32_t>(j), used};
        }
      };
      if (stage.isStart)
        offer(first, firstFrom, std::max(alone, least));
      offer(rest, restFrom, std::max(next, least));
      if (next <= least) // more of them are no gain
        break;
    }
  }
}

/// An entry holds for more devices, too. Those that are left before it must do
/// the work up to a start that is wanted.
void RowWithin::close(size_t k, double most, double reach) {
  const double before = (search.states.seconds[k] - reach) * (1 - near);
  for (int m = 1; m <= machines; ++m) {
    auto take = [&](std::vector<double> &values, std::vector<From> &from) {
      if (values[index(k, m - 1)] <= values[index(k, m)]) {
        values[index(k, m)] = values[index(k, m - 1)];
        from[index(k, m)] = from[index(k, m - 1)];
      }
    };
    take(first, firstFrom);
    take(rest, restFrom);
  }
  for (int m = 1; m <= machines; ++m)
    if (before > most * (machines - m))
      rest[index(k, m)] = none;
  fewest[k] = 1;
  while (fewest[k] < machines && rest[index(k, fewest[k])] == none)
    ++fewest[k];
}

std::vector<PipeDreamGroup> RowWithin::stages(size_t start, int devices) const {
  std::vector<PipeDreamGroup> stages;
  for (size_t k = start; k != end;) {
    const bool isFirst = k == start;
    const std::vector<double> &values = isFirst ? first : rest;
    while (values[index(k, devices - 1)] == values[index(k, devices)])
      --devices; // that is what it was found with
    const From from = (isFirst ? firstFrom : restFrom)[index(k, devices)];
    stages.push_back({k, from.end, from.devices, {}});
    k = from.end;
    devices -= from.devices;
  }
  return stages;
}

} // namespace pipec::published
