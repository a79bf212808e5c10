#include "BruteForce.h"
#include "RandomGraphs.h"
#include "compiler/plan/published/ContiguousWithin.h"
#include "compiler/plan/published/PlacementCuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

using namespace pipec::published;
using pipec::plan::test::Random;
using pipec::plan::test::rounds;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// A connected graph, in half of the cases with a backward node for each
/// forward one, whose outputs go the other way.
PlacementGraph randomGraph(Random &random) {
  PlacementGraph graph;
  graph.deviceBytes = random.between(0, 2) ? 1e9 : random.between(20, 40);
  graph.accelerators = random.between(0, 5);
  graph.cpus = random.between(graph.accelerators ? 0 : 1, 2);
  const bool training = random.between(0, 1);
  const int n = random.between(4, 11);
  const int dearest = random.between(0, 2) * 10; // of its transfers
  std::vector<double> costs;
  for (int v = 0; v < (training ? 2 * n : n); ++v) {
    PlacementNode node;
    node.id = std::to_string(v);
    node.backward = v >= n;
    node.onAccelerator = random.between(0, 19) > 0;
    node.latency = random.between(0, 3) ? random.between(1, 9) : 0;
    node.cpuLatency = node.latency * random.between(1, 4);
    node.bytes = random.between(0, 9);
    node.colorClass = v % n;
    graph.nodes.push_back(node);
    costs.push_back(random.between(0, dearest) * 0.5);
  }
  auto edge = [&](int a, int b) {
    graph.edges.push_back({a, b, costs[a]});
    if (training)
      graph.edges.push_back({n + b, n + a, costs[n + b]});
  };
  for (int v = 1; v < n; ++v) {
    const int u = random.between(std::max(0, v - 4), v - 1);
    edge(u, v);
    if (const int w = random.between(0, v - 1); w != u && random.between(0, 1))
      edge(w, v);
  }
  return graph;
}

/// The least largest load by the recursion over all pairs of cuts.
double leastLoad(const PlacementUnits &units, const PlacementMachine &machine,
                 const PlacementCuts &cuts) {
  const auto cpus = static_cast<size_t>(machine.cpus + 1);
  const size_t slots = static_cast<size_t>(machine.accelerators + 1) * cpus;
  std::vector<std::vector<double>> least(cuts.size(),
                                         std::vector<double>(slots, inf));
  std::fill(least[0].begin(), least[0].end(), 0.0);
  for (size_t j = 1; j < cuts.size(); ++j)
    for (size_t k = 0; k < j; ++k) {
      if (!cuts.sets.subset(k, j))
        continue;
      std::vector<char> member(static_cast<size_t>(units.size()), 0);
      double bytes = 0;
      bool runs = true;
      for (int u = 0; u < units.size(); ++u)
        if (BitRows::test(cuts.sets.row(j), u) &&
            !BitRows::test(cuts.sets.row(k), u)) {
          member[u] = 1;
          bytes += units.bytes[u];
          runs &= units.onAccelerator[u] != 0;
        }
      const double cpu = placementLoad(units, member, true);
      const double accelerator = runs && bytes <= machine.bytes
                                     ? placementLoad(units, member, false)
                                     : inf;
      for (size_t s = 0; s < slots; ++s) {
        if (s % cpus > 0)
          least[j][s] = std::min(least[j][s], std::max(least[k][s - 1], cpu));
        if (s >= cpus)
          least[j][s] =
              std::min(least[j][s], std::max(least[k][s - cpus], accelerator));
      }
    }
  return least.back().back();
}

} // namespace

/// Something is found for the least largest load and nothing below it.
TEST(Contiguous, WithinEqualsTheRecursionOverAllCuts) {
  Random random(41);
  int infeasible = 0, covered = 0, several = 0;
  for (int round = 0; round < rounds(400); ++round) {
    const PlacementGraph graph = randomGraph(random);
    const PlacementUnits units = placementUnits(graph);
    const PlacementMachine machine{graph.accelerators, graph.cpus,
                                   graph.deviceBytes};
    BitRows sets;
    ASSERT_TRUE(allSets(units, true, 100'000, sets));
    const PlacementCuts cuts = placementCuts(units, sets);
    const double want = leastLoad(units, machine, cuts);
    ContiguousWithin within(units, machine, cuts);
    covered += static_cast<int>(cuts.coveredBy.items.size());
    if (want == inf) {
      EXPECT_TRUE(within.find(1e9).devices.empty()) << round;
      ++infeasible;
      continue;
    }
    const PlacementPlan plan = within.find(want * (1 + 1e-12));
    ASSERT_FALSE(plan.devices.empty()) << round;
    EXPECT_NEAR(plan.load, want, 1e-9 * want) << round;
    EXPECT_TRUE(within.find(want * (1 - 1e-9)).devices.empty()) << round;
    EXPECT_NEAR(searchContiguous(units, machine, 100'000).load, want,
                1e-9 * want);
    several += plan.devices.size() > 3;
  }
  EXPECT_GT(infeasible, 10);
  EXPECT_GT(covered, 1000);
  EXPECT_GT(several, 40);
}

/// a goes to b and c, which both go to d; only d's transfers are cheaper than
/// what it saves.
TEST(Contiguous, CutsCoverThoseThatLackAUnitThatSavesMore) {
  PlacementGraph graph;
  graph.deviceBytes = 1e9;
  for (const char *id : {"a", "b", "c", "d"}) {
    PlacementNode node;
    node.id = id;
    node.latency = node.cpuLatency = 1;
    graph.nodes.push_back(node);
  }
  graph.edges = {{0, 1, 10}, {0, 2, 10}, {1, 3, 20}, {2, 3, 5}};
  const PlacementUnits units = placementUnits(graph);
  BitRows sets;
  ASSERT_TRUE(allSets(units, false, 100, sets));
  const PlacementCuts cuts = placementCuts(units, sets);
  auto named = [&](size_t cut) {
    std::string name;
    for (int u = 0; u < units.size(); ++u)
      if (BitRows::test(cuts.sets.row(cut), u))
        name += graph.nodes[static_cast<size_t>(units.members[u][0])].id;
    return name;
  };
  std::vector<std::string> pairs;
  for (size_t j = 0; j < cuts.size(); ++j)
    for (uint32_t k : cuts.coveredBy[j])
      pairs.push_back(named(j) + " " + named(k));
  // b needs what it takes in elsewhere too, until c is there.
  std::sort(pairs.begin(), pairs.end());
  EXPECT_EQ(pairs, (std::vector<std::string>{"abc ab", "abcd abc"}));
}
