#include "compiler/plan/published/PiperStage.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::published {

namespace {
constexpr double inf = std::numeric_limits<double>::infinity();
}

PiperStage::PiperStage(const PiperGraph &graph, const std::vector<int> &nodes,
                       const std::vector<char> &member, int degree,
                       double memory)
    : count(nodes.size()), memory(memory) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    int v = nodes[i];
    auto it = graph.nodes[static_cast<size_t>(v)].variants.find(degree);
    if (it == graph.nodes[static_cast<size_t>(v)].variants.end() ||
        it->second.empty()) {
      possible = false;
      return;
    }
    std::vector<double> seconds;
    for (const PiperVariant &variant : it->second) {
      double bytes = 0; // each way once: forward value and its gradient
      for (size_t e = 0; e < graph.dag.in[v].size(); ++e)
        if (!member[graph.dag.in[v][e]])
          bytes += 2 * (graph.bytesIn[v][e] + variant.syncIn[e]);
      for (size_t e = 0; e < graph.dag.out[v].size(); ++e)
        if (!member[graph.dag.out[v][e]])
          bytes += 2 * (graph.bytesOut[v][e] + variant.syncOut[e]);
      seconds.push_back(variant.seconds + bytes / graph.bandwidth);
    }
    size_t best = static_cast<size_t>(
        std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
    const PiperVariant &fast = it->second[best];
    fastestVariant.push_back(static_cast<int>(best));
    fastestSeconds += seconds[best];
    // Variants of a node differ in time and memory, not in its weights; should
    // they, the heaviest counts.
    double weights = 0;
    for (size_t l = 0; l < seconds.size(); ++l) {
      const PiperVariant &other = it->second[l];
      weights = std::max(weights, other.weights);
      if (l != best)
        options.push_back({static_cast<int>(i), static_cast<int>(l),
                           seconds[l] - seconds[best],
                           fast.memoryPerMicrobatch - other.memoryPerMicrobatch,
                           fast.memoryFixed - other.memoryFixed});
    }
    weightBytes += weights;
    usedPerMicrobatch += fast.memoryPerMicrobatch;
    usedFixed += fast.memoryFixed;
  }
}

/// Options that save memory, least time per byte first. Of several for one node
/// the first wins; a later one replaces it where it saves more.
std::vector<const PiperStage::Option *> PiperStage::byValue(int y) const {
  std::vector<const Option *> sorted;
  for (const Option &o : options)
    if (o.saved(y) > 1e-9)
      sorted.push_back(&o);
  std::sort(sorted.begin(), sorted.end(),
            [y](const Option *a, const Option *b) {
              double x = a->extra * b->saved(y), z = b->extra * a->saved(y);
              return x != z ? x < z : a < b;
            });
  return sorted;
}

namespace {

/// Branch and bound over options sorted by value: which to take so that at
/// least `need` bytes are saved in least time.
class Knapsack {
public:
  struct Item {
    int node;
    double extra, saved;
  };
  Knapsack(const std::vector<Item> &items, size_t nodes, double need)
      : items(items), need(need), taken(nodes, -1) {}

  void solve() {
    greedy();
    branch(0, need, 0);
  }

  double best = inf;
  std::vector<int> bestTaken; ///< item of each node, -1 none

private:
  /// Takes options in order until enough is saved, then gives back what is not
  /// needed, dearest first: what branching has to beat.
  void greedy();
  void branch(size_t from, double left, double spent);
  double bound(size_t from, double left, double spent) const;
  void keep(double spent) {
    if (spent < best) {
      best = spent;
      bestTaken = taken;
    }
  }

  const std::vector<Item> &items;
  const double need;
  std::vector<int> taken;
  int budget = 400; ///< branchings; beyond, the best so far stands
};

void Knapsack::greedy() {
  double left = need, spent = 0;
  std::vector<size_t> order;
  for (size_t i = 0; i < items.size() && left > 0; ++i) {
    int &mine = taken[static_cast<size_t>(items[i].node)];
    double saved = mine < 0 ? 0 : items[static_cast<size_t>(mine)].saved;
    if (items[i].saved <= saved)
      continue;
    left -= items[i].saved - saved;
    mine = static_cast<int>(i);
  }
  if (left <= 0) {
    for (int i : taken)
      if (i >= 0)
        order.push_back(static_cast<size_t>(i));
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return items[a].extra != items[b].extra ? items[a].extra > items[b].extra
                                              : a < b;
    });
    for (size_t i : order)
      if (items[i].saved <= -left) {
        left += items[i].saved;
        taken[static_cast<size_t>(items[i].node)] = -1;
      }
    for (int i : taken)
      spent += i >= 0 ? items[static_cast<size_t>(i)].extra : 0;
    keep(spent);
  }
  std::fill(taken.begin(), taken.end(), -1);
}

/// Filling the rest with fractions of the best-valued options costs no more
/// than any choice.
double Knapsack::bound(size_t from, double left, double spent) const {
  for (size_t i = from; i < items.size() && left > 0; ++i) {
    if (taken[static_cast<size_t>(items[i].node)] >= 0)
      continue;
    if (left <= items[i].saved) // what is left after it would be rounding
      return spent + items[i].extra * (left / items[i].saved);
    spent += items[i].extra;
    left -= items[i].saved;
  }
  return left > 0 ? inf : spent;
}

void Knapsack::branch(size_t from, double left, double spent) {
  if (left <= 0) {
    keep(spent);
    return;
  }
  if (--budget < 0 || bound(from, left, spent) >= best * (1 - 1e-12))
    return;
  size_t i = from;
  while (i < items.size() && taken[static_cast<size_t>(items[i].node)] >= 0)
    ++i;
  if (i == items.size())
    return;
  int &mine = taken[static_cast<size_t>(items[i].node)];
  mine = static_cast<int>(i);
  branch(i + 1, left - items[i].saved, spent + items[i].extra);
  mine = -1;
  // Without it, options that save no more and cost no less are not needed
  // either: alike layers would otherwise be tried in every combination.
  size_t next = i + 1;
  while (next < items.size() && items[next].saved <= items[i].saved &&
         items[next].extra >= items[i].extra)
    ++next;
  branch(next, left, spent);
}

} // namespace

double PiperStage::solve(int y, std::vector<int> *choice) const {
  if (choice)
    *choice = fastestVariant;
  double need = excess(y);
  if (need <= 0)
    return fastestSeconds;
  std::vector<const Option *> sorted = byValue(y);
  std::vector<Knapsack::Item> items;
  for (const Option *o : sorted)
    items.push_back({o->node, o->extra, o->saved(y)});
  // Rounding in the sums must not turn away what the published program accepts.
  Knapsack knapsack(items, count, need - 1e-9);
  knapsack.solve();
  if (!std::isfinite(knapsack.best))
    return inf;
  if (choice)
    for (int i : knapsack.bestTaken)
      if (i >= 0)
        (*choice)[static_cast<size_t>(items[static_cast<size_t>(i)].node)] =
            sorted[static_cast<size_t>(i)]->variant;
  return fastestSeconds + knapsack.best;
}

double PiperStage::seconds(int y) {
  if (excess(y) <= 0)
    return fastestSeconds;
  auto it = known.find(y);
  if (it == known.end())
    it = known.emplace(y, solve(y, nullptr)).first;
  return it->second;
}

double PiperStage::fractionalSeconds(int y) const {
  double need = excess(y), seconds = fastestSeconds;
  if (need <= 0)
    return seconds;
  std::vector<double> saved(count, 0), extra(count, 0);
  for (const Option *o : byValue(y)) {
    size_t node = static_cast<size_t>(o->node);
    double more = o->saved(y) - saved[node];
    if (more <= 0)
      continue;
    double price = o->extra - extra[node];
    if (need <= more)
      return seconds + std::max(0.0, price) * (need / more);
    seconds += std::max(0.0, price);
    need -= more;
    saved[node] = o->saved(y);
    extra[node] = o->extra;
  }
  return need > 1e-9 * std::max(1.0, memory) ? inf : seconds;
}

double PiperStage::leastBytes(int y) const {
  std::vector<double> most(count, 0);
  for (const Option &o : options)
    most[static_cast<size_t>(o.node)] =
        std::max(most[static_cast<size_t>(o.node)], o.saved(y));
  double bytes = excess(y) + memory;
  for (double saved : most)
    bytes -= saved;
  return bytes;
}

int PiperStage::mostInFlight(int cap) const {
  double tolerance = 1e-9 * std::max(1.0, memory);
  if (leastBytes(1) > memory + tolerance)
    return 0;
  int low = 1, high = cap + 1;
  while (low + 1 < high) {
    int middle = low + (high - low) / 2;
    (leastBytes(middle) <= memory + tolerance ? low : high) = middle;
  }
  return low;
}

std::vector<int> PiperStage::choose(int y) const {
  std::vector<int> choice;
  solve(y, &choice);
  return choice;
}

} // namespace pipec::published
