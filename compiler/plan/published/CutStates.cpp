#include "compiler/plan/published/CutStates.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace pipec::published {

namespace {

/// The profile with free nodes merged. A group has one node whose output leaves
/// it, the tail.
struct Merged {
  Dag dag;
  std::vector<double> seconds, weights, kept, output;
  std::vector<std::vector<int>> members;
};

class Merger {
public:
  Merger(const PipeDreamProfile &profile, bool memoryLimited);
  Merged run();

private:
  bool mergeOne(int v);
  void join(int node, int into, double output);

  const bool memoryLimited;
  std::vector<double> seconds, weights, kept, output;
  std::vector<std::vector<int>> members;
  std::vector<std::set<int>> out, in;
  std::vector<char> alive;
};

Merger::Merger(const PipeDreamProfile &profile, bool memoryLimited)
    : memoryLimited(memoryLimited) {
  size_t n = profile.nodes.size();
  out.resize(n), in.resize(n), alive.assign(n, 1);
  for (size_t v = 0; v < n; ++v) {
    const ProfileNode &node = profile.nodes[v];
    seconds.push_back(node.milliseconds() / 1000);
    weights.push_back(node.parameterBytes);
    kept.push_back(node.parameterBytes + node.activationBytes);
    output.push_back(node.activationBytes);
    members.push_back({static_cast<int>(v)});
    out[v].insert(profile.dag.out[v].begin(), profile.dag.out[v].end());
    in[v].insert(profile.dag.in[v].begin(), profile.dag.in[v].end());
  }
}

void Merger::join(int node, int into, double newOutput) {
  for (int u : in[node]) {
    out[u].erase(node);
    if (u != into)
      out[u].insert(into), in[into].insert(u);
  }
  for (int w : out[node]) {
    in[w].erase(node);
    if (w != into)
      in[w].insert(into), out[into].insert(w);
  }
  output[into] = newOutput;
  kept[into] += kept[node];
  members[into].insert(members[into].end(), members[node].begin(),
                       members[node].end());
  alive[node] = 0;
}

bool Merger::mergeOne(int v) {
  if (seconds[v] != 0 || weights[v] != 0 || (memoryLimited && kept[v] != 0))
    return false;
  if (in[v].size() == 1) {
    int u = *in[v].begin();
    if (out[v].empty()) {
      join(v, u, output[u]);
      return true;
    }
    if (out[u].size() == 1 && output[v] <= output[u]) {
      join(v, u, output[v]);
      return true;
    }
  }
  if (out[v].size() == 1) {
    double inputs = 0;
    for (int u : in[v])
      inputs += output[u];
    if (output[v] >= inputs) {
      int w = *out[v].begin();
      join(v, w, output[w]);
      return true;
    }
  }
  return false;
}

Merged Merger::run() {
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t v = 0; v < alive.size(); ++v)
      if (alive[v] && std::accumulate(alive.begin(), alive.end(), 0) > 1)
        changed |= mergeOne(static_cast<int>(v));
  }
  Merged merged;
  std::vector<int> number(alive.size(), -1);
  for (size_t v = 0; v < alive.size(); ++v) {
    if (!alive[v])
      continue;
    number[v] = static_cast<int>(merged.seconds.size());
    merged.seconds.push_back(seconds[v]);
    merged.weights.push_back(weights[v]);
    merged.kept.push_back(kept[v]);
    merged.output.push_back(output[v]);
    std::sort(members[v].begin(), members[v].end());
    merged.members.push_back(members[v]);
  }
  merged.dag = Dag(static_cast<int>(merged.seconds.size()));
  for (size_t v = 0; v < alive.size(); ++v)
    if (alive[v])
      for (int w : out[v])
        merged.dag.edge(number[v], number[static_cast<size_t>(w)]);
  merged.dag.finish();
  return merged;
}

/// The sets that the prefixes of linear orders form, smaller sets first; with
/// more than `limit` of one order, the cheapest cut in each share of the work.
void prefixSets(const Merged &merged, size_t limit, BitRows &sets) {
  int n = merged.dag.size();
  std::vector<std::vector<int>> orders =
      linearOrders(merged.dag, merged.output);
  size_t each = std::max<size_t>(2, (limit - 2) / orders.size());
  size_t words = BitRows(static_cast<size_t>(n)).words;
  std::vector<std::pair<int, std::vector<uint64_t>>> chosen;
  double total =
      std::accumulate(merged.seconds.begin(), merged.seconds.end(), 0.0);
  double grain = total > 0 ? 0.1 * total / n : 1.0;
  for (const auto &order : orders) {
    std::vector<uint64_t> row(words, 0), best;
    std::vector<size_t> pending(static_cast<size_t>(n));
    for (int v = 0; v < n; ++v)
      pending[v] = merged.dag.out[v].size();
    double frontier = 0, bestFrontier = 0, done = 0;
    size_t bucket = 0;
    int bestSize = 0;
    auto close = [&] {
      if (!best.empty())
        chosen.push_back({bestSize, best});
      best.clear();
    };
    for (int i = 0; i < n; ++i) {
      int v = order[i];
      BitRows::set(row.data(), v);
      frontier += pending[v] ? merged.output[v] : 0;
      for (int u : merged.dag.in[v])
        if (--pending[u] == 0)
          frontier -= merged.output[u];
      done += merged.seconds[v] + grain;
      size_t mine =
          static_cast<size_t>(n) <= each
              ? static_cast<size_t>(i)
              : static_cast<size_t>(done / (1.1 * total + (total > 0 ? 0 : n)) *
                                    static_cast<double>(each - 1));
      if (!best.empty() && (mine != bucket || i == n - 1))
        close();
      if (best.empty() || frontier < bestFrontier)
        best = row, bestFrontier = frontier, bestSize = i + 1;
      bucket = mine;
    }
    close();
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  sets = BitRows(static_cast<size_t>(n));
  std::vector<uint64_t> none(words, 0);
  sets.push(none.data());
  for (const auto &[size, row] : chosen)
    sets.push(row.data());
}

double secondsOf(const Merged &merged, const uint64_t *row) {
  double seconds = 0;
  for (int v = 0; v < merged.dag.size(); ++v)
    seconds += BitRows::test(row, v) ? merged.seconds[v] : 0;
  return seconds;
}

/// Of equal work smaller sets stay first.
void sortByWork(const Merged &merged, BitRows &sets) {
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
  for (size_t g = 0; g < groups.size(); ++g)
    if (BitRows::test(sets.row(b), static_cast<int>(g)) &&
        !BitRows::test(sets.row(a), static_cast<int>(g)))
      nodes.insert(nodes.end(), groups[g].begin(), groups[g].end());
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

CutStates CutStates::only(const std::vector<size_t> &chosen) const {
  CutStates few;
  few.groups = groups;
  few.sets = BitRows(groups.size());
  std::vector<int> number(size(), -1);
  for (size_t s : chosen) {
    number[s] = static_cast<int>(few.seconds.size());
    few.seconds.push_back(seconds[s]);
    few.weights.push_back(weights[s]);
    few.kept.push_back(kept[s]);
    few.cut.push_back(cut[s]);
    few.sets.push(sets.row(s));
  }
  few.above.resize(few.size());
  for (size_t s : chosen)
    for (uint32_t t : above[s])
      if (number[t] >= 0)
        few.above[static_cast<size_t>(number[s])].push_back(
            static_cast<uint32_t>(number[t]));
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

CutStates cutStates(const PipeDreamProfile &profile, size_t limit,
                    bool memoryLimited) {
  Merged merged = Merger(profile, memoryLimited).run();
  CutStates states;
  states.groups = merged.members;
  states.complete = closedSets(merged.dag, limit, states.sets);
  if (!states.complete)
    prefixSets(merged, limit, states.sets);
  sortByWork(merged, states.sets);
  size_t n = states.sets.rows();
  for (size_t s = 0; s < n; ++s) {
    const uint64_t *row = states.sets.row(s);
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
  states.above.resize(n);
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b)
      if (states.sets.subset(a, b))
        states.above[a].push_back(static_cast<uint32_t>(b));
  return states;
}

} // namespace pipec::published
