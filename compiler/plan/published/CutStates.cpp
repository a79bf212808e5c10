#include "compiler/plan/published/CutStates.h"

#include "compiler/plan/published/SomeClosedSets.h"

#include <algorithm>

namespace pipec::published {

namespace {

double secondsOf(const MergedProfile &merged, const uint64_t *row) {
  double seconds = 0;
  for (int v = 0; v < merged.dag.size(); ++v)
    seconds += BitRows::test(row, v) ? merged.seconds[v] : 0;
  return seconds;
}

/// Of equal work smaller sets stay first.
void sortByWork(const MergedProfile &merged, BitRows &sets) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t s = 0; s < sets.rows(); ++s)
    order.push_back({secondsOf(merged, sets.row(s)), s});
  std::sort(order.begin(), order.end());
  BitRows sorted(static_cast<size_t>(merged.dag.size()));
  for (const auto &[seconds, s] : order)
    sorted.push(sets.row(s));
  sets = std::move(sorted);
}

} // namespace

std::vector<int> CutStates::between(size_t a, size_t b) const {
  std::vector<int> nodes;
  const auto &groups = profile->members;
  for (size_t g = 0; g < groups.size(); ++g)
    if (BitRows::test(sets.row(b), static_cast<int>(g)) &&
        !BitRows::test(sets.row(a), static_cast<int>(g)))
      nodes.insert(nodes.end(), groups[g].begin(), groups[g].end());
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

CutStates CutStates::only(const std::vector<size_t> &chosen) const {
  CutStates few;
  few.profile = profile;
  few.sets.words = sets.words;
  for (size_t s : chosen) {
    few.seconds.push_back(seconds[s]);
    few.weights.push_back(weights[s]);
    few.kept.push_back(kept[s]);
    few.cut.push_back(cut[s]);
    few.sets.push(sets.row(s));
  }
  few.above = Supersets(few.size());
  for (size_t a = 0; a < chosen.size(); ++a)
    for (size_t b = a + 1; b < chosen.size(); ++b)
      if (above.has(chosen[a], chosen[b]))
        few.above.add(a, b);
  return few;
}

std::vector<size_t> spread(const CutStates &states, size_t most) {
  const size_t between = states.size() - 2;
  const size_t shares = std::min(most - 2, between);
  std::vector<size_t> chosen{0};
  for (size_t i = 0; i < shares; ++i) {
    const auto from = static_cast<ptrdiff_t>(1 + i * between / shares);
    const auto to = static_cast<ptrdiff_t>(1 + (i + 1) * between / shares);
    chosen.push_back(static_cast<size_t>(
        std::min_element(states.cut.begin() + from, states.cut.begin() + to) -
        states.cut.begin()));
  }
  chosen.push_back(states.size() - 1);
  return chosen;
}

namespace {

/// What is known of these sets, smaller ones first.
CutStates statesOf(std::shared_ptr<const MergedProfile> profile, BitRows sets) {
  const MergedProfile &merged = *profile;
  sortByWork(merged, sets);
  CutStates states;
  for (size_t s = 0; s < sets.rows(); ++s) {
    const uint64_t *row = sets.row(s);
    double weights = 0, kept = 0, cut = 0;
    for (int v = 0; v < merged.dag.size(); ++v) {
      if (!BitRows::test(row, v))
        continue;
      weights += merged.weights[v];
      kept += merged.kept[v];
      bool leaves =
          std::any_of(merged.dag.out[v].begin(), merged.dag.out[v].end(),
                      [&](int w) { return !BitRows::test(row, w); });
      cut += leaves ? merged.output[v] : 0;
    }
    states.seconds.push_back(secondsOf(merged, row));
    states.weights.push_back(weights);
    states.kept.push_back(kept);
    states.cut.push_back(cut);
  }
  states.above = supersetsOf(merged.dag, sets);
  states.sets = std::move(sets);
  states.profile = std::move(profile);
  return states;
}

} // namespace

CutStates cutStates(const PipeDreamProfile &profile, size_t limit,
                    bool memoryLimited) {
  auto merged = std::make_shared<const MergedProfile>(
      mergeFreeNodes(profile, memoryLimited));
  BitRows sets;
  const bool complete = closedSets(merged->dag, limit, sets);
  if (!complete)
    sets = someSets(*merged, limit);
  CutStates states = statesOf(std::move(merged), std::move(sets));
  states.complete = complete;
  return states;
}

CutStates nearStates(const CutStates &states, const std::vector<size_t> &cuts,
                     size_t limit, int round) {
  std::vector<const uint64_t *> rows;
  for (size_t cut : cuts)
    rows.push_back(states.sets.row(cut));
  return statesOf(states.profile,
                  nearSets(*states.profile, rows, limit, round));
}

} // namespace pipec::published
