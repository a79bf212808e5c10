#include "compiler/plan/published/SomeClosedSets.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <tuple>

namespace pipec::published {

namespace {

/// The sets that the prefixes of linear orders form, smaller sets first; with
/// more than `limit` of one order, the cheapest cut in each share of the work.
BitRows prefixSets(const MergedProfile &merged, size_t limit) {
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
  BitRows sets(static_cast<size_t>(n));
  for (const auto &[size, row] : chosen)
    sets.push(row.data());
  return sets;
}

/// Gathers sets, each once, smaller ones first.
class Union {
public:
  explicit Union(size_t nodes) : words(BitRows(nodes).words), nodes(nodes) {
    chosen.push_back({0, std::vector<uint64_t>(words, 0)});
  }
  void add(const uint64_t *row) {
    size_t size = 0;
    for (size_t w = 0; w < words; ++w)
      size += static_cast<size_t>(std::popcount(row[w]));
    chosen.push_back({size, {row, row + words}});
  }
  void add(const BitRows &sets) {
    for (size_t s = 0; s < sets.rows(); ++s)
      add(sets.row(s));
  }
  BitRows all() {
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    BitRows sets(nodes);
    for (const auto &[size, row] : chosen)
      sets.push(row.data());
    return sets;
  }

private:
  const size_t words, nodes;
  std::vector<std::pair<size_t, std::vector<uint64_t>>> chosen;
};

/// A linear order and windows of it.
class Windows {
public:
  Windows(const Dag &dag, std::vector<int> order)
      : dag(dag), order(std::move(order)), at(this->order.size()) {
    for (size_t i = 0; i < at.size(); ++i)
      at[static_cast<size_t>(this->order[i])] = i;
  }
  size_t size() const { return order.size(); }

  /// What is closed in the window [from, to); false where it is more than
  /// `most` sets. What two of its nodes have between them lies in it as well.
  bool closed(size_t from, size_t to, size_t most, BitRows &sets) const {
    Dag inside(static_cast<int>(to - from));
    for (size_t i = from; i < to; ++i)
      for (int u : dag.in[static_cast<size_t>(order[i])])
        if (const size_t before = at[static_cast<size_t>(u)]; before >= from)
          inside.edge(static_cast<int>(before - from),
                      static_cast<int>(i - from));
    inside.finish();
    return closedSets(inside, most, sets);
  }

  /// These sets of the window that begins at `from`, behind all before it.
  void add(size_t from, const BitRows &sets, Union &to) const {
    const size_t nodes = order.size();
    std::vector<uint64_t> before(BitRows(nodes).words, 0);
    for (size_t i = 0; i < from; ++i)
      BitRows::set(before.data(), order[i]);
    for (size_t s = 0; s < sets.rows(); ++s) {
      std::vector<uint64_t> row = before;
      for (size_t i = from; i < nodes && i - from < sets.words * 64; ++i)
        if (BitRows::test(sets.row(s), static_cast<int>(i - from)))
          BitRows::set(row.data(), order[i]);
      to.add(row.data());
    }
  }

  /// The largest r of [0, most] for which the window that `range` gives has at
  /// most so many sets, which are left in `sets`.
  template <typename Ranges>
  size_t widest(size_t most, size_t limit, const Ranges &range,
                BitRows &sets) const {
    size_t low = 0, high = most;
    auto holds = [&](size_t r) {
      const auto [from, to] = range(r);
      return closed(from, to, limit, sets);
    };
    while (low < high) {
      const size_t middle = std::min((low + high + 1) / 2, 2 * low + 2);
      if (holds(middle))
        low = middle;
      else
        high = middle - 1;
    }
    holds(low);
    return low;
  }

  /// Windows of at most `each` sets that cover the order; false where they have
  /// more than `limit` together.
  bool cover(size_t each, size_t limit, Union &to) const {
    std::vector<std::pair<size_t, BitRows>> parts;
    size_t total = 0;
    for (size_t from = 0; from < size();) {
      BitRows sets;
      const size_t width = widest(
          size() - from, each,
          [&](size_t r) { return std::pair{from, from + r}; }, sets);
      total += sets.rows();
      if (width == 0 || total > limit)
        return false;
      parts.push_back({from, std::move(sets)});
      from += width;
    }
    for (const auto &[from, sets] : parts)
      add(from, sets, to);
    return true;
  }

private:
  const Dag &dag;
  const std::vector<int> order;
  std::vector<size_t> at;
};

/// The closed sets that keep chains together, of nodes with one successor that
/// has no other source; none where they are more than `limit`.
void chainSets(const Dag &dag, size_t limit, Union &to) {
  const auto n = static_cast<size_t>(dag.size());
  std::vector<int> chain(n, -1);
  int count = 0;
  for (int v : topologicalOrder(dag)) {
    const auto &in = dag.in[static_cast<size_t>(v)];
    const bool goesOn =
        in.size() == 1 && dag.out[static_cast<size_t>(in[0])].size() == 1;
    chain[static_cast<size_t>(v)] =
        goesOn ? chain[static_cast<size_t>(in[0])] : count++;
  }
  Dag chains(count);
  for (size_t v = 0; v < n; ++v)
    for (int w : dag.out[v])
      if (chain[v] != chain[static_cast<size_t>(w)])
        chains.edge(chain[v], chain[static_cast<size_t>(w)]);
  chains.finish();
  BitRows sets;
  if (!closedSets(chains, limit, sets))
    return;
  for (size_t s = 0; s < sets.rows(); ++s) {
    std::vector<uint64_t> row(BitRows(n).words, 0);
    for (size_t v = 0; v < n; ++v)
      if (BitRows::test(sets.row(s), chain[v]))
        BitRows::set(row.data(), static_cast<int>(v));
    to.add(row.data());
  }
}

/// Of the longest way to each node, itself included, where a node counts for
/// so much.
std::vector<double> depths(const Dag &dag, const std::vector<double> &counts,
                           bool fromTheEnd) {
  std::vector<int> order = topologicalOrder(dag);
  if (fromTheEnd)
    std::reverse(order.begin(), order.end());
  std::vector<double> depth(counts.size(), 0);
  for (int v : order) {
    double most = 0;
    for (int u : (fromTheEnd ? dag.out : dag.in)[static_cast<size_t>(v)])
      most = std::max(most, depth[static_cast<size_t>(u)]);
    depth[static_cast<size_t>(v)] = most + counts[static_cast<size_t>(v)];
  }
  return depth;
}

/// A number for each node that grows along every edge.
std::vector<double> ranks(const MergedProfile &merged, int round) {
  const auto n = static_cast<size_t>(merged.dag.size());
  std::vector<double> rank(n), counts(n, 1);
  constexpr int kDepths = 2;
  if (round < kDepths) {
    const double total =
        std::accumulate(merged.seconds.begin(), merged.seconds.end(), 0.0);
    for (size_t v = 0; round == 0 && total > 0 && v < n; ++v)
      counts[v] = merged.seconds[v] / total + 1e-6;
    const std::vector<double> before = depths(merged.dag, counts, false);
    const std::vector<double> after = depths(merged.dag, counts, true);
    for (size_t v = 0; v < n; ++v)
      rank[v] = before[v] - after[v];
    return rank;
  }
  const auto orders = linearOrders(merged.dag, merged.output);
  if (const auto which = static_cast<size_t>(round - kDepths);
      which < orders.size()) {
    for (size_t i = 0; i < n; ++i)
      rank[static_cast<size_t>(orders[which][i])] = static_cast<double>(i);
    return rank;
  }
  std::mt19937 random(static_cast<unsigned>(round));
  for (double &count : counts)
    count = 1 + random() % 64;
  return depths(merged.dag, counts, false);
}

/// A linear order through these cuts; `ends` are their sizes.
std::vector<int> orderThrough(const MergedProfile &merged,
                              const std::vector<const uint64_t *> &cuts,
                              int round, std::vector<size_t> &ends) {
  const auto n = static_cast<size_t>(merged.dag.size());
  std::vector<size_t> stage(n, 0);
  ends.assign(cuts.size(), 0);
  for (size_t v = 0; v < n; ++v)
    for (size_t c = 0; c < cuts.size(); ++c)
      if (BitRows::test(cuts[c], static_cast<int>(v)))
        ++ends[c];
      else
        stage[v] = std::max(stage[v], c + 1);
  const std::vector<double> rank = ranks(merged, round);
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const auto x = static_cast<size_t>(a), y = static_cast<size_t>(b);
    return std::tuple(stage[x], rank[x], a) < std::tuple(stage[y], rank[y], b);
  });
  return order;
}

} // namespace

BitRows someSets(const MergedProfile &merged, size_t limit) {
  const auto n = static_cast<size_t>(merged.dag.size());
  Union found(n);
  found.add(prefixSets(merged, limit / 4));
  chainSets(merged.dag, limit / 4, found);
  const auto orders = linearOrders(merged.dag, merged.output);
  for (const auto &order : orders) {
    const Windows windows(merged.dag, order);
    for (size_t each = 256; each > 2; each /= 2)
      if (windows.cover(each, limit / 2 / orders.size() - 2, found))
        break;
  }
  return found.all();
}

BitRows nearSets(const MergedProfile &merged,
                 const std::vector<const uint64_t *> &cuts, size_t limit,
                 int round) {
  const auto n = static_cast<size_t>(merged.dag.size());
  std::vector<size_t> ends;
  const Windows windows(merged.dag,
                        orderThrough(merged, cuts, round / 2, ends));
  Union found(n);
  for (const uint64_t *cut : cuts)
    found.add(cut);
  size_t left = limit - cuts.size() - 1;
  if (n < left / 2) {
    BitRows sets(n);
    std::vector<uint64_t> chain(sets.words, 0);
    for (size_t i = 0; i <= n; ++i) {
      sets.push(chain.data());
      if (i < n)
        BitRows::set(chain.data(), static_cast<int>(i));
    }
    windows.add(0, sets, found);
    left -= n;
  }
  // In every other round the windows may hold several cuts.
  if (round % 2 != 0)
    for (size_t each = left / 2; each > 2; each /= 2)
      if (windows.cover(each, left, found))
        return found.all();
  // Up to the middle between two cuts; what one leaves is for the others.
  for (size_t c = 0; c < cuts.size(); ++c) {
    const size_t end = ends[c];
    const size_t low = c == 0 ? 0 : (ends[c - 1] + end + 1) / 2;
    const size_t high = c + 1 == cuts.size() ? n : (end + ends[c + 1] + 1) / 2;
    auto range = [&](size_t r) {
      return std::pair{end - std::min(r, end - low),
                       end + std::min(r, high - end)};
    };
    BitRows sets;
    const size_t width = windows.widest(std::max(end - low, high - end),
                                        left / (cuts.size() - c), range, sets);
    windows.add(range(width).first, sets, found);
    left -= std::min(left, sets.rows());
  }
  return found.all();
}

} // namespace pipec::published
