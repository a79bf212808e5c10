#include "compiler/plan/published/PiperStage.h"

#include <algorithm>
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

double PiperStage::solve(int y, std::vector<int> *choice) const {
  if (choice)
    *choice = fastestVariant;
  double need = excess(y);
  if (need <= 0)
    return fastestSeconds;
  std::vector<const Option *> sorted = byValue(y);
  std::vector<const Option *> taken(count, nullptr);
  double left = need;
  size_t used = 0;
  for (; used < sorted.size() && left > 0; ++used) {
    const Option *&mine = taken[static_cast<size_t>(sorted[used]->node)];
    double before = mine ? mine->saved(y) : 0;
    if (sorted[used]->saved(y) <= before)
      continue;
    left -= sorted[used]->saved(y) - before;
    mine = sorted[used];
  }
  if (left > 1e-9 * std::max(1.0, memory))
    return inf;
  // The last option may overshoot: give back what is not needed, dearest first,
  // then look for one cheaper option that does the last one's work.
  std::vector<const Option *> chosen;
  for (const Option *o : taken)
    if (o)
      chosen.push_back(o);
  std::sort(chosen.begin(), chosen.end(), [](const Option *a, const Option *b) {
    return a->extra != b->extra ? a->extra > b->extra : a < b;
  });
  double spare = -left;
  for (const Option *o : chosen)
    if (o->saved(y) <= spare) {
      spare -= o->saved(y);
      taken[static_cast<size_t>(o->node)] = nullptr;
    }
  for (const Option *o : chosen) {
    if (taken[static_cast<size_t>(o->node)] != o)
      continue;
    const Option *better = nullptr;
    for (const Option *other : sorted) {
      const Option *at = taken[static_cast<size_t>(other->node)];
      bool freeNode = !at || other->node == o->node;
      if (freeNode && other->saved(y) >= o->saved(y) - spare &&
          other->extra < o->extra && (!better || other->extra < better->extra))
        better = other;
    }
    if (!better)
      continue;
    spare += better->saved(y) - o->saved(y);
    taken[static_cast<size_t>(o->node)] = nullptr;
    taken[static_cast<size_t>(better->node)] = better;
  }
  double seconds = fastestSeconds;
  for (const Option *o : taken)
    if (o) {
      seconds += o->extra;
      if (choice)
        (*choice)[static_cast<size_t>(o->node)] = o->variant;
    }
  return seconds;
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
    double share = std::min(1.0, need / more);
    seconds += std::max(0.0, price) * share;
    need -= more * share;
    if (need <= 0)
      return seconds;
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
