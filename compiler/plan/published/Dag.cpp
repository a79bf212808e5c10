#include "compiler/plan/published/Dag.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace pipec::published {

void Dag::edge(int from, int to) {
  out[static_cast<size_t>(from)].push_back(to);
  in[static_cast<size_t>(to)].push_back(from);
}

void Dag::finish() {
  for (auto *lists : {&out, &in})
    for (auto &list : *lists) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
}

std::vector<int> topologicalOrder(const Dag &dag) {
  std::vector<size_t> missing(dag.out.size());
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int v = 0; v < dag.size(); ++v) {
    missing[v] = dag.in[v].size();
    if (missing[v] == 0)
      ready.push(v);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    int v = ready.top();
    ready.pop();
    order.push_back(v);
    for (int w : dag.out[v])
      if (--missing[w] == 0)
        ready.push(w);
  }
  if (order.size() != dag.out.size())
    order.clear();
  return order;
}

std::vector<int> findCycle(const Dag &dag) {
  // Peel off what is not on or behind a cycle, then walk predecessors among the
  // rest until a node repeats.
  std::vector<size_t> missing(dag.out.size());
  std::vector<int> ready;
  for (int v = 0; v < dag.size(); ++v)
    if ((missing[v] = dag.in[v].size()) == 0)
      ready.push_back(v);
  while (!ready.empty()) {
    int v = ready.back();
    ready.pop_back();
    for (int w : dag.out[v])
      if (--missing[w] == 0)
        ready.push_back(w);
  }
  int start = -1;
  for (int v = 0; v < dag.size() && start < 0; ++v)
    if (missing[v] > 0)
      start = v;
  if (start < 0)
    return {};
  std::vector<int> seenAt(dag.out.size(), -1), walk;
  for (int v = start; seenAt[v] < 0;) {
    seenAt[v] = static_cast<int>(walk.size());
    walk.push_back(v);
    for (int u : dag.in[v])
      if (missing[u] > 0) {
        v = u;
        break;
      }
    if (seenAt[v] >= 0)
      walk.erase(walk.begin(), walk.begin() + seenAt[v]), seenAt[v] = 0;
  }
  std::reverse(walk.begin(), walk.end());
  return walk;
}

namespace {

/// Tarjan's algorithm with an explicit stack.
struct Tarjan {
  const Dag &dag;
  std::vector<int> index, low, component, stack;
  std::vector<char> onStack;
  int counter = 0, components = 0;

  explicit Tarjan(const Dag &dag)
      : dag(dag), index(dag.out.size(), -1), low(dag.out.size(), 0),
        component(dag.out.size(), -1), onStack(dag.out.size(), 0) {}

  void visit(int root) {
    std::vector<std::pair<int, size_t>> calls{{root, 0}};
    enter(root);
    while (!calls.empty()) {
      auto &[v, next] = calls.back();
      if (next < dag.out[v].size()) {
        int w = dag.out[v][next++];
        if (index[w] < 0) {
          enter(w);
          calls.push_back({w, 0});
        } else if (onStack[w]) {
          low[v] = std::min(low[v], index[w]);
        }
        continue;
      }
      int done = v;
      calls.pop_back();
      if (!calls.empty())
        low[calls.back().first] = std::min(low[calls.back().first], low[done]);
      if (low[done] == index[done])
        leave(done);
    }
  }
  void enter(int v) {
    index[v] = low[v] = counter++;
    stack.push_back(v);
    onStack[v] = 1;
  }
  void leave(int root) {
    while (true) {
      int w = stack.back();
      stack.pop_back();
      onStack[w] = 0;
      component[w] = components;
      if (w == root)
        break;
    }
    ++components;
  }
};

} // namespace

std::vector<int> strongComponents(const Dag &dag, int &count) {
  Tarjan tarjan(dag);
  for (int v = 0; v < dag.size(); ++v)
    if (tarjan.index[v] < 0)
      tarjan.visit(v);
  count = tarjan.components;
  // Renumber topologically, by smallest member among the ready.
  Dag condensed(count);
  std::vector<int> smallest(static_cast<size_t>(count), dag.size());
  for (int v = 0; v < dag.size(); ++v) {
    int c = tarjan.component[v];
    smallest[c] = std::min(smallest[c], v);
    for (int w : dag.out[v])
      if (tarjan.component[w] != c)
        condensed.edge(c, tarjan.component[w]);
  }
  condensed.finish();
  using Ready = std::pair<int, int>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  std::vector<size_t> missing(static_cast<size_t>(count));
  for (int c = 0; c < count; ++c)
    if ((missing[c] = condensed.in[c].size()) == 0)
      ready.push({smallest[c], c});
  std::vector<int> number(static_cast<size_t>(count));
  for (int next = 0; !ready.empty(); ++next) {
    int c = ready.top().second;
    ready.pop();
    number[c] = next;
    for (int d : condensed.out[c])
      if (--missing[d] == 0)
        ready.push({smallest[d], d});
  }
  for (int &c : tarjan.component)
    c = number[c];
  return tarjan.component;
}

int weakComponents(const Dag &dag) {
  std::vector<char> seen(dag.out.size(), 0);
  int components = 0;
  for (int root = 0; root < dag.size(); ++root) {
    if (seen[root])
      continue;
    ++components;
    std::vector<int> stack{root};
    seen[root] = 1;
    while (!stack.empty()) {
      int v = stack.back();
      stack.pop_back();
      for (const auto *list : {&dag.out[v], &dag.in[v]})
        for (int w : *list)
          if (!seen[w])
            seen[w] = 1, stack.push_back(w);
    }
  }
  return components;
}

bool closedSets(const Dag &dag, size_t limit, BitRows &sets) {
  sets = BitRows(static_cast<size_t>(std::max(1, dag.size())));
  size_t words = sets.words;
  std::vector<uint64_t> row(words, 0);
  sets.push(row.data());
  auto hash = [&](const uint64_t *r) {
    uint64_t h = 1469598103934665603ull;
    for (size_t w = 0; w < words; ++w) {
      h ^= r[w];
      h *= 1099511628211ull;
      h ^= h >> 29;
    }
    return h;
  };
  // Level by level: all sets of one size, then all of the next. A set of size
  // s+1 is new unless an equal one is on the level being built.
  size_t levelBegin = 0, levelEnd = 1;
  while (levelBegin < levelEnd) {
    std::unordered_multimap<uint64_t, size_t> fresh;
    for (size_t s = levelBegin; s < levelEnd; ++s)
      for (int v = 0; v < dag.size(); ++v) {
        const uint64_t *from = sets.row(s);
        if (BitRows::test(from, v))
          continue;
        bool ready = std::all_of(dag.in[v].begin(), dag.in[v].end(),
                                 [&](int u) { return BitRows::test(from, u); });
        if (!ready)
          continue;
        std::copy(from, from + words, row.begin());
        BitRows::set(row.data(), v);
        uint64_t h = hash(row.data());
        auto [first, last] = fresh.equal_range(h);
        bool known = std::any_of(first, last, [&](const auto &entry) {
          return std::equal(row.begin(), row.end(), sets.row(entry.second));
        });
        if (known)
          continue;
        if (sets.rows() >= limit) {
          sets = BitRows(static_cast<size_t>(dag.size()));
          return false;
        }
        fresh.emplace(h, sets.rows());
        sets.push(row.data());
      }
    levelBegin = levelEnd;
    levelEnd = sets.rows();
  }
  return true;
}

namespace {

std::vector<int> depthFirst(const Dag &dag) {
  std::vector<size_t> missing(dag.out.size());
  std::vector<int> stack, order;
  for (int v = dag.size(); v-- > 0;)
    if ((missing[v] = dag.in[v].size()) == 0)
      stack.push_back(v);
  while (!stack.empty()) {
    int v = stack.back();
    stack.pop_back();
    order.push_back(v);
    for (size_t i = dag.out[v].size(); i-- > 0;)
      if (--missing[dag.out[v][i]] == 0)
        stack.push_back(dag.out[v][i]);
  }
  return order;
}

std::vector<int> breadthFirst(const Dag &dag) {
  std::vector<size_t> missing(dag.out.size());
  std::vector<int> order;
  for (int v = 0; v < dag.size(); ++v)
    if ((missing[v] = dag.in[v].size()) == 0)
      order.push_back(v);
  for (size_t i = 0; i < order.size(); ++i)
    for (int w : dag.out[order[i]])
      if (--missing[w] == 0)
        order.push_back(w);
  return order;
}

/// Always takes the ready node that leaves the smallest frontier; among equals
/// the one that became ready last, so that a branch is finished once begun.
std::vector<int> smallFrontier(const Dag &dag,
                               const std::vector<double> &bytes) {
  std::vector<size_t> missing(dag.out.size()), pending(dag.out.size());
  std::vector<std::pair<int, int>> ready; // node, when it became ready
  int clock = 0;
  for (int v = 0; v < dag.size(); ++v) {
    pending[v] = dag.out[v].size();
    if ((missing[v] = dag.in[v].size()) == 0)
      ready.push_back({v, clock++});
  }
  std::vector<int> order;
  while (!ready.empty()) {
    size_t best = 0;
    double bestGrowth = 0;
    for (size_t r = 0; r < ready.size(); ++r) {
      int v = ready[r].first;
      double growth = dag.out[v].empty() ? 0 : bytes[v];
      for (int u : dag.in[v])
        if (pending[u] == 1)
          growth -= bytes[u];
      bool better =
          r == 0 || growth < bestGrowth ||
          (growth == bestGrowth && ready[r].second > ready[best].second);
      if (better)
        best = r, bestGrowth = growth;
    }
    int v = ready[best].first;
    ready.erase(ready.begin() + static_cast<long>(best));
    order.push_back(v);
    for (int u : dag.in[v])
      --pending[u];
    for (int w : dag.out[v])
      if (--missing[w] == 0)
        ready.push_back({w, clock++});
  }
  return order;
}

} // namespace

std::vector<std::vector<int>>
linearOrders(const Dag &dag, const std::vector<double> &frontier) {
  std::vector<std::vector<int>> orders;
  for (auto &order :
       {depthFirst(dag), smallFrontier(dag, frontier), breadthFirst(dag)})
    if (std::find(orders.begin(), orders.end(), order) == orders.end())
      orders.push_back(order);
  return orders;
}

} // namespace pipec::published
