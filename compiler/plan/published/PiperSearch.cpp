#include "compiler/plan/published/PiperSearch.h"

#include "compiler/plan/published/PiperStage.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::published {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr int none = std::numeric_limits<int>::max() / 4;

/// Suffixes of the pipeline: sets closed under successors, smaller ones first.
BitRows suffixes(const PiperGraph &graph, size_t limit, bool &complete) {
  Dag reversed(graph.dag.size());
  for (int v = 0; v < graph.dag.size(); ++v)
    for (int w : graph.dag.out[v])
      reversed.edge(w, v);
  reversed.finish();
  BitRows sets;
  complete = closedSets(reversed, limit, sets);
  if (complete)
    return sets;
  std::vector<double> frontier(graph.nodes.size(), 0);
  for (int v = 0; v < graph.dag.size(); ++v)
    for (double bytes : graph.bytesIn[v])
      frontier[v] += bytes;
  std::vector<std::pair<size_t, std::vector<uint64_t>>> rows;
  auto orders = linearOrders(reversed, frontier);
  size_t words = BitRows(graph.nodes.size()).words;
  for (const auto &order : orders) {
    if (!rows.empty() && rows.size() + order.size() > limit)
      break;
    std::vector<uint64_t> row(words, 0);
    size_t size = 0;
    rows.push_back({size, row});
    for (int v : order) {
      BitRows::set(row.data(), v);
      rows.push_back({++size, row});
    }
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  sets = BitRows(graph.nodes.size());
  for (const auto &[size, row] : rows)
    sets.push(row.data());
  return sets;
}

class Search {
public:
  Search(const PiperGraph &graph, size_t limit, double memory);

  bool feasible(double seconds, bool fractional);
  void setMemory(double bytes);
  /// The plan behind the last feasible().
  PiperPlan rebuild(double seconds);
  PiperPlan solve();
  double lowerBound(double seconds);
  double floorSeconds() const;
  size_t states() const { return sets.rows(); }
  bool allCuts() const { return complete; }

private:
  /// A stage's nodes on one tensor-parallel degree, between two suffixes.
  struct Pair {
    uint32_t after;   ///< the suffix that follows the stage
    uint32_t through; ///< the suffix that includes it
    int degree;
    int most; ///< microbatches in flight that fit at all
    PiperStage stage;
  };
  /// Stage seconds per microbatch for d replicas and y in flight.
  double stageSeconds(Pair &pair, int d, int y, bool fractional) {
    double own =
        fractional ? pair.stage.fractionalSeconds(y) : pair.stage.seconds(y);
    return own / d + 4 * (d - 1) * pair.stage.weights() / (d * exchange);
  }
  int inFlightWithin(Pair &pair, int d, double seconds, bool fractional);
  void relax(Pair &pair, double seconds, bool fractional);
  std::vector<int> nodesBetween(uint32_t after, uint32_t through) const;

  const PiperGraph &graph;
  double exchange; ///< microbatches * bandwidth
  BitRows sets;
  bool complete = false;
  int replicasAtMost;        ///< Σ d
  std::vector<int> divisors; ///< of the microbatches, ascending
  std::vector<Pair> pairs;   ///< by through, then after
  std::vector<int> fewest; ///< [suffix][s]: devices, at most s replicas in all
};

std::vector<int> Search::nodesBetween(uint32_t after, uint32_t through) const {
  std::vector<int> nodes;
  for (int v = 0; v < graph.dag.size(); ++v)
    if (BitRows::test(sets.row(through), v) &&
        !BitRows::test(sets.row(after), v))
      nodes.push_back(v);
  return nodes;
}

Search::Search(const PiperGraph &graph, size_t limit, double memory)
    : graph(graph), exchange(graph.microbatches * graph.bandwidth) {
  sets = suffixes(graph, limit, complete);
  replicasAtMost = std::min(graph.microbatches, graph.devices);
  for (int d = 1; d <= replicasAtMost; ++d)
    if (graph.microbatches % d == 0)
      divisors.push_back(d);
  std::vector<int> degrees;
  for (const PiperNode &node : graph.nodes)
    for (const auto &[t, list] : node.variants)
      if (t <= graph.devices)
        degrees.push_back(t);
  std::sort(degrees.begin(), degrees.end());
  degrees.erase(std::unique(degrees.begin(), degrees.end()), degrees.end());

  std::vector<char> member(graph.nodes.size(), 0);
  Phase pricing("pricing stages, cut", static_cast<int64_t>(sets.rows()));
  for (uint32_t through = 1; through < sets.rows(); ++through) {
    pricing.next();
    for (uint32_t after = 0; after < through; ++after) {
      if (!sets.subset(after, through))
        continue;
      std::vector<int> nodes = nodesBetween(after, through);
      for (int v : nodes)
        member[v] = 1;
      for (int t : degrees) {
        PiperStage stage(graph, nodes, member, t, memory);
        if (stage.feasible())
          pairs.push_back({after, through, t, 0, std::move(stage)});
      }
      for (int v : nodes)
        member[v] = 0;
    }
  }
  setMemory(memory);
}

void Search::setMemory(double bytes) {
  for (Pair &pair : pairs) {
    pair.stage.setMemory(bytes);
    pair.most = pair.stage.mostInFlight(replicasAtMost);
  }
}

/// The most microbatches in flight for which d replicas stay within `seconds`.
int Search::inFlightWithin(Pair &pair, int d, double seconds, bool fractional) {
  double exchangeSeconds = 4 * (d - 1) * pair.stage.weights() / (d * exchange);
  double budget = (seconds - exchangeSeconds) * d;
  if (pair.stage.fastest() > budget)
    return 0;
  auto fits = [&](int y) {
    return (fractional ? pair.stage.fractionalSeconds(y)
                       : pair.stage.seconds(y)) <= budget;
  };
  int high = std::min(pair.most, (replicasAtMost + d - 1) / d);
  if (fits(high))
    return high;
  int low = 0; // fits (or 0), high does not
  while (low + 1 < high) {
    int middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

/// Stages of this pair: for every number of replicas from here on, the fewest
/// replicas of the stage that are fast enough; fewer replicas need fewer
/// devices and leave more to the later stages.
void Search::relax(Pair &pair, double seconds, bool fractional) {
  size_t width = static_cast<size_t>(replicasAtMost) + 1;
  const int *rest = &fewest[pair.after * width];
  int *mine = &fewest[pair.through * width];
  if (pair.most == 0)
    return;
  int covered = 0;
  for (int d : divisors) {
    long devices = static_cast<long>(d) * pair.degree;
    if (devices > graph.devices || covered >= replicasAtMost)
      break;
    int most = inFlightWithin(pair, d, seconds, fractional);
    int reach = static_cast<int>(
        std::min<long>(replicasAtMost, static_cast<long>(d) * most));
    int first = std::max(covered + 1, d);
    int added = static_cast<int>(devices);
    for (int s = first; s <= reach; ++s)
      mine[s] = std::min(mine[s], rest[s - d] + added);
    covered = std::max(covered, reach);
  }
}

bool Search::feasible(double seconds, bool fractional) {
  Phase searching("searching cuts", static_cast<int64_t>(sets.rows()));
  size_t width = static_cast<size_t>(replicasAtMost) + 1;
  fewest.assign(sets.rows() * width, none);
  std::fill(fewest.begin(), fewest.begin() + static_cast<long>(width), 0);
  size_t p = 0;
  for (uint32_t through = 1; through < sets.rows(); ++through) {
    searching.next();
    for (; p < pairs.size() && pairs[p].through == through; ++p)
      relax(pairs[p], seconds, fractional);
    int *row = &fewest[through * width];
    for (size_t s = 1; s < width; ++s)
      row[s] = std::min(row[s], row[s - 1]);
  }
  return fewest.back() <= graph.devices;
}

PiperPlan Search::rebuild(double seconds) {
  PiperPlan plan;
  size_t width = static_cast<size_t>(replicasAtMost) + 1;
  uint32_t at = static_cast<uint32_t>(sets.rows() - 1);
  int s = replicasAtMost;
  while (at != 0) {
    const int *row = &fewest[at * width];
    while (s > 1 && row[s - 1] == row[s])
      --s;
    auto first =
        std::partition_point(pairs.begin(), pairs.end(),
                             [&](const Pair &p) { return p.through < at; });
    bool found = false;
    for (auto it = first; it != pairs.end() && it->through == at && !found;
         ++it)
      for (int d : divisors) {
        if (d > s || static_cast<long>(d) * it->degree > row[s])
          break;
        if (fewest[it->after * width + static_cast<size_t>(s - d)] +
                    d * it->degree !=
                row[s] ||
            stageSeconds(*it, d, (s + d - 1) / d, false) > seconds)
          continue;
        PiperPlanStage stage;
        stage.nodes = nodesBetween(it->after, at);
        stage.replicas = d;
        stage.degree = it->degree;
        plan.stages.push_back(std::move(stage));
        at = it->after;
        s -= d;
        found = true;
        break;
      }
    if (!found)
      return {}; // rounding at the edge of feasibility; the caller keeps its
                 // plan
  }
  // Memory by the replicas actually there, which are at most those allowed for.
  int suffix = 0;
  for (size_t i = plan.stages.size(); i-- > 0;) {
    PiperPlanStage &stage = plan.stages[i];
    suffix += stage.replicas;
    stage.inFlight = (suffix + stage.replicas - 1) / stage.replicas;
    std::vector<char> member(graph.nodes.size(), 0);
    for (int v : stage.nodes)
      member[v] = 1;
    PiperStage priced(graph, stage.nodes, member, stage.degree, graph.memory);
    stage.variants = priced.choose(stage.inFlight);
    stage.seconds = priced.seconds(stage.inFlight) / stage.replicas +
                    4 * (stage.replicas - 1) * priced.weights() /
                        (stage.replicas * exchange);
    for (size_t k = 0; k < stage.nodes.size(); ++k) {
      const PiperVariant &variant =
          graph.nodes[static_cast<size_t>(stage.nodes[k])].variants.at(
              stage.degree)[static_cast<size_t>(stage.variants[k])];
      stage.bytes +=
          variant.memoryPerMicrobatch * stage.inFlight + variant.memoryFixed;
    }
    plan.seconds = std::max(plan.seconds, stage.seconds);
  }
  return plan;
}

/// No plan is faster: the least device time of every node spread over all
/// devices, and each node on as many as may share it.
double Search::floorSeconds() const {
  double deviceTime = 0, largest = 0;
  for (const PiperNode &node : graph.nodes) {
    double least = inf, alone = inf;
    for (const auto &[t, list] : node.variants)
      for (const PiperVariant &v : list) {
        least = std::min(least, t * v.seconds);
        if (t <= graph.devices)
          alone = std::min(
              alone, v.seconds / std::min(replicasAtMost, graph.devices / t));
      }
    deviceTime += std::isfinite(least) ? least : 0;
    largest = std::max(largest, std::isfinite(alone) ? alone : 0);
  }
  return std::max(largest, deviceTime / graph.devices);
}

PiperPlan Search::solve() {
  PiperPlan best;
  double high = 0;
  for (Pair &pair : pairs)
    if (pair.most > 0)
      high = std::max(high, stageSeconds(pair, 1, pair.most, false));
  if (!feasible(high * (1 + 1e-9), false))
    return best;
  best = rebuild(high * (1 + 1e-9));
  double low = floorSeconds() * (1 - 1e-9);
  // Close in on the optimum, then step from plan to better plan until there is
  // none.
  while (best.seconds > low * (1 + 1e-4)) {
    double middle = 0.5 * (low + best.seconds);
    PiperPlan found;
    if (feasible(middle, false))
      found = rebuild(middle);
    if (found.stages.empty())
      low = middle;
    else
      best = std::move(found);
  }
  while (true) {
    double target = best.seconds * (1 - 1e-10);
    if (!feasible(target, false))
      break;
    PiperPlan found = rebuild(target);
    if (found.stages.empty() || found.seconds >= best.seconds)
      break;
    best = std::move(found);
  }
  return best;
}

/// Largest time known to be infeasible even with variants mixed within nodes.
double Search::lowerBound(double seconds) {
  double low = floorSeconds() * (1 - 1e-9), high = seconds;
  while (high > low * (1 + 1e-4)) {
    double middle = 0.5 * (low + high);
    (feasible(middle, true) ? high : low) = middle;
  }
  return low;
}

} // namespace

PiperPlan searchPiper(const PiperGraph &graph, size_t limit) {
  Search search(graph, limit, graph.memory);
  PiperPlan plan = search.solve();
  plan.states = search.states();
  plan.complete = search.allCuts();
  if (!plan.stages.empty())
    plan.bound = search.lowerBound(plan.seconds);
  return plan;
}

double leastPiperMemory(const PiperGraph &graph, size_t limit) {
  Search search(graph, limit, graph.memory);
  auto fits = [&](double memory) {
    search.setMemory(memory);
    return search.feasible(inf, false);
  };
  double low = graph.memory, high = 2 * graph.memory + 1;
  while (high < 1e18 && !fits(high))
    low = high, high *= 2;
  while (high - low > 1e-3 * high) {
    double middle = 0.5 * (low + high);
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

double piperDataParallel(const PiperGraph &graph) {
  std::vector<int> nodes;
  for (int v = 0; v < graph.dag.size(); ++v)
    nodes.push_back(v);
  std::vector<char> member(nodes.size(), 1);
  PiperStage stage(graph, nodes, member, 1, graph.memory);
  if (!stage.feasible())
    return inf;
  double best = inf;
  for (int d = 1; d <= std::min(graph.devices, graph.microbatches); ++d)
    if (graph.microbatches % d == 0)
      best = std::min(best, stage.seconds(1) / d +
                                4.0 * (d - 1) * stage.weights() / d /
                                    (graph.microbatches * graph.bandwidth));
  return best;
}

} // namespace pipec::published
