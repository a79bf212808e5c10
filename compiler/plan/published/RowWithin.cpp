#include "compiler/plan/published/RowWithin.h"

#include "compiler/plan/published/PipeDreamRow.h"

#include <algorithm>

namespace pipec::published {

static constexpr double near = 1e-9; ///< of what is as good as equal

RowWithin::RowWithin(EverySearch &search)
    : search(search), machines(search.levels[0].machines),
      first(index(search.states.size(), 0), none), rest(first),
      firstFrom(first.size()), restFrom(first.size()),
      fewest(search.states.size()) {}

void RowWithin::solve(size_t to, int copies, int after, double reach) {
  const CutStates &states = search.states;
  end = lowest = to;
  cap = search.cap * copies;
  const double most = cap * machines * (1 + near);
  while (lowest > 0 && states.seconds[end] - states.seconds[lowest - 1] <= most)
    --lowest;
  std::fill(first.begin() + static_cast<long>(index(lowest, 0)),
            first.begin() + static_cast<long>(index(end + 1, 0)), none);
  std::fill(rest.begin() + static_cast<long>(index(lowest, 0)),
            rest.begin() + static_cast<long>(index(end + 1, 0)), none);
  rest[index(end, 0)] = 0;
  fewest[end] = 0;
  search.effort -= static_cast<double>(index(end - lowest, 0)) / 2;
  for (size_t k = end; k-- > lowest;) {
    for (uint32_t j : states.above[k]) {
      const double work = states.seconds[j] - states.seconds[k];
      if (j > end || work > most)
        break;
      --search.effort;
      if (fewest[j] < machines &&
          states.kept[j] - states.kept[k] <= search.limit)
        begin(k, j, copies, after);
    }
    close(k, reach);
  }
}

/// A stage from k to j before what is known from there.
void RowWithin::begin(size_t k, size_t j, int copies, int after) {
  const CutStates &states = search.states;
  const double work = states.seconds[j] - states.seconds[k];
  const PipeDreamLevel &level = search.levels[0];
  const double weights = states.weights[j] - states.weights[k];
  const bool atEnd = j + 1 == states.size();
  const double edges = 2 *
                       std::max(states.cut[k], atEnd ? 0.0 : states.cut[j]) /
                       level.bandwidth;
  const int least = machinesFor(work * (1 - near), cap);
  for (int m = fewest[j]; m + least <= machines; ++m) {
    const double behind = rest[index(j, m)];
    if (behind == none || (m > 0 && rest[index(j, m - 1)] <= behind))
      continue;
    for (int used = least; m + used <= machines; ++used) {
      --search.effort;
      if (stageBytes(states, k, j, after + copies * (m + used), copies * used) >
          search.limit)
        continue;
      const double alone = // the first pays for no cut
          (work + 4 * (used - 1) * weights / (level.bandwidth * used)) / used;
      const double next = std::max(alone, edges / used);
      auto offer = [&](std::vector<double> &values, std::vector<From> &from,
                       double seconds) {
        double &known = values[index(k, m + used)];
        if (seconds <= cap && seconds < known) {
          known = seconds;
          from[index(k, m + used)] = {static_cast<uint32_t>(j), used};
        }
      };
      offer(first, firstFrom, std::max(alone, behind));
      offer(rest, restFrom, std::max(next, behind));
      if (next <= behind) // more of them are no gain
        break;
    }
  }
}

/// An entry holds for more devices, too. Those that are left before it must do
/// the work up to a start that is wanted.
void RowWithin::close(size_t k, double reach) {
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
    if (before > cap * (machines - m))
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
