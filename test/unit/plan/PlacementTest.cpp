#include "BruteForce.h"
#include "RandomGraphs.h"
#include "compiler/plan/published/PublishedVerifier.h"
#include "support/Failure.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <limits>

using namespace pipec;
using namespace pipec::published;
using nlohmann::json;
using pipec::plan::test::Random;
using pipec::plan::test::rounds;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// A connected random instance; with `training`, backward nodes of which some
/// are coloured with their forward node and some stand alone.
json randomInstance(Random &random, int nodes, bool training) {
  json root = {{"maxSizePerFPGA",
                random.between(0, 2) ? 1e9 : random.between(4, 9) * 10.0},
               {"maxFPGAs", random.between(1, 3)},
               {"maxCPUs", random.between(0, 1)},
               {"nodes", json::array()},
               {"edges", json::array()}};
  std::vector<double> cost;
  auto add = [&](int id, bool backward, json color) {
    bool free = random.between(0, 3) == 0;
    double latency = free ? 0 : random.between(1, 20);
    root["nodes"].push_back(
        {{"id", id},
         {"supportedOnFpga", random.between(0, 9) > 0},
         {"cpuLatency", free ? 0 : latency * random.between(1, 6)},
         {"fpgaLatency", latency},
         {"isBackwardNode", backward ? 1 : 0},
         {"colorClass", color},
         {"size", random.between(0, 9) * 1.0}});
    cost.push_back(random.between(0, 8) * 0.5);
  };
  std::vector<std::pair<int, int>> forward;
  for (int v = 0; v < nodes; ++v) {
    add(v, false,
        random.between(0, 4) == 0 ? json(nullptr)
                                  : json(random.between(0, 9) ? v : v / 2));
    if (v > 0)
      forward.push_back({random.between(0, v - 1), v});
    if (v > 1 && random.between(0, 1))
      forward.push_back({random.between(0, v - 2), v});
  }
  std::sort(forward.begin(), forward.end());
  forward.erase(std::unique(forward.begin(), forward.end()), forward.end());
  auto edge = [&](int a, int b) {
    root["edges"].push_back({{"sourceId", a},
                             {"destId", b},
                             {"cost", cost[static_cast<size_t>(a)]}});
  };
  if (training) {
    for (int v = 0; v < nodes; ++v) {
      json own = root["nodes"][static_cast<size_t>(v)]["colorClass"];
      add(nodes + v, true, random.between(0, 3) ? own : json(1000 + v));
    }
    for (auto [a, b] : forward)
      edge(nodes + b, nodes + a);
    edge(nodes - 1, 2 * nodes - 1);
  }
  for (auto [a, b] : forward)
    edge(a, b);
  return root;
}

/// Smallest largest load over every assignment of classes to devices;
/// contiguous: forward classes must follow the device order, in some order of
/// the devices.
double bruteForce(const PlacementGraph &graph, bool contiguous) {
  // Classes by colour.
  std::vector<int> classOf(graph.nodes.size());
  std::vector<std::optional<long long>> colors;
  int classes = 0;
  for (size_t v = 0; v < graph.nodes.size(); ++v) {
    int found = -1;
    for (size_t u = 0; u < v; ++u)
      if (graph.nodes[v].colorClass &&
          graph.nodes[u].colorClass == graph.nodes[v].colorClass)
        found = classOf[u];
    classOf[v] = found < 0 ? classes++ : found;
  }
  std::vector<char> hasForward(static_cast<size_t>(classes), 0);
  for (size_t v = 0; v < graph.nodes.size(); ++v)
    if (!graph.nodes[v].backward)
      hasForward[classOf[v]] = 1;
  std::vector<std::pair<int, int>> order;
  for (const auto &e : graph.edges) {
    bool back = graph.nodes[e.from].backward;
    int a = classOf[e.from], b = classOf[e.to];
    if (back != graph.nodes[e.to].backward || a == b)
      continue;
    if (!back)
      order.push_back({a, b});
    else if (!hasForward[a] || !hasForward[b])
      order.push_back({b, a});
  }
  int devices = graph.accelerators + graph.cpus;
  std::vector<char> cpu(static_cast<size_t>(devices), 0);
  for (int d = graph.accelerators; d < devices; ++d)
    cpu[d] = 1;
  std::sort(cpu.begin(), cpu.end());
  double best = inf;
  std::vector<int> where(static_cast<size_t>(classes), 0);
  do {
    std::function<void(int)> go = [&](int c) {
      if (c < classes) {
        for (int d = 0; d < devices; ++d) {
          where[c] = d;
          go(c + 1);
        }
        return;
      }
      if (contiguous)
        for (auto [a, b] : order)
          if (where[a] > where[b])
            return;
      std::vector<double> load(static_cast<size_t>(devices), 0), bytes(load);
      for (size_t v = 0; v < graph.nodes.size(); ++v) {
        int d = where[classOf[v]];
        if (!cpu[d] && !graph.nodes[v].onAccelerator)
          return;
        load[d] += cpu[d] ? graph.nodes[v].cpuLatency : graph.nodes[v].latency;
        bytes[d] += cpu[d] ? 0 : graph.nodes[v].bytes;
      }
      for (size_t v = 0; v < graph.nodes.size(); ++v) {
        std::vector<char> to(static_cast<size_t>(devices), 0);
        double cost = 0;
        for (const auto &e : graph.edges)
          if (e.from == static_cast<int>(v) &&
              where[classOf[e.to]] != where[classOf[v]])
            to[where[classOf[e.to]]] = 1, cost = e.cost;
        bool leaves = std::find(to.begin(), to.end(), 1) != to.end();
        if (leaves && !cpu[where[classOf[v]]])
          load[where[classOf[v]]] += cost;
        for (int d = 0; d < devices; ++d)
          if (to[d] && !cpu[d])
            load[d] += cost;
      }
      for (int d = 0; d < devices; ++d)
        if (bytes[d] > graph.deviceBytes)
          return;
      best = std::min(best, *std::max_element(load.begin(), load.end()));
    };
    go(0);
  } while (contiguous && std::next_permutation(cpu.begin(), cpu.end()));
  return best;
}

} // namespace

TEST(Placement, ContiguousEqualsBruteForce) {
  Random random(31);
  int infeasible = 0, cpuUsed = 0;
  for (int round = 0; round < rounds(500); ++round) {
    bool training = round % 2;
    json instance = randomInstance(
        random, training ? random.between(2, 4) : random.between(2, 7),
        training);
    PlacementGraph graph = parsePlacementGraph(instance.dump(), "random");
    PlacementUnits units = placementUnits(graph);
    PlacementMachine machine{graph.accelerators, graph.cpus, graph.deviceBytes};
    PlacementPlan plan = searchContiguous(units, machine, 100000);
    double want = bruteForce(graph, true);
    if (want == inf) {
      EXPECT_TRUE(plan.devices.empty()) << round;
      ++infeasible;
      continue;
    }
    ASSERT_FALSE(plan.devices.empty()) << round << instance.dump(1);
    ASSERT_NEAR(plan.load, want, 1e-9 * std::max(1.0, want))
        << round << instance.dump(1);
    verifyPlacement(graph, units, machine, plan, true);
    EXPECT_LE(placementBound(units, machine), want * (1 + 1e-9));
    for (const auto &d : plan.devices)
      cpuUsed += d.cpu;
  }
  EXPECT_GT(infeasible, 5);
  EXPECT_GT(cpuUsed, 20);
}

TEST(Placement, FreeIsProvedOnSmallGraphs) {
  Random random(32);
  int below = 0, graphs = 0, annealed = 0;
  for (int round = 0; round < rounds(120); ++round) {
    bool training = round % 3 == 0;
    json instance = randomInstance(
        random, training ? random.between(2, 4) : random.between(3, 7),
        training);
    PlacementGraph graph = parsePlacementGraph(instance.dump(), "random");
    PlacementUnits units = placementUnits(graph, false);
    PlacementMachine machine{graph.accelerators, graph.cpus, graph.deviceBytes};
    double want = bruteForce(graph, false);
    PlacementPlan contiguous =
        searchContiguous(placementUnits(graph), machine, 100000);
    if (contiguous.devices.empty() || want == inf)
      continue;
    ++graphs;
    // From everything on the last device, where that fits.
    PlacementPlan plan =
        placementOf(units, machine,
                    std::vector<int>(static_cast<size_t>(units.size()),
                                     machine.accelerators + machine.cpus - 1));
    if (machine.cpus > 0) {
      plan = searchFree(units, machine, plan, 20000);
      verifyPlacement(graph, units, machine, plan, false);
      annealed += plan.load <= want * (1 + 1e-9);
    } else {
      plan.load = 2 * contiguous.load + 1;
    }
    EXPECT_GE(plan.load, want * (1 - 1e-9));
    proveFree(units, machine, plan);
    EXPECT_TRUE(plan.exact) << round;
    ASSERT_NEAR(plan.load, want, 1e-9 * std::max(1.0, want)) << round;
    verifyPlacement(graph, units, machine, plan, false);
    EXPECT_LE(placementBound(units, machine), want * (1 + 1e-9));
    below += want < contiguous.load * (1 - 1e-9);
  }
  EXPECT_GT(graphs, 60);
  EXPECT_GT(below, 3);
  EXPECT_GT(annealed, 20);
}

namespace {

/// A chain of forward nodes of these sizes, each costing 1.
PlacementGraph chainOf(const std::vector<double> &sizes) {
  PlacementGraph graph;
  for (size_t v = 0; v < sizes.size(); ++v) {
    PlacementNode node;
    node.id = std::to_string(v);
    node.latency = node.cpuLatency = 1;
    node.bytes = sizes[v];
    graph.nodes.push_back(node);
    if (v > 0)
      graph.edges.push_back({static_cast<int>(v) - 1, static_cast<int>(v), 0});
  }
  return graph;
}

} // namespace

TEST(Placement, LeastBytesOfEitherShape) {
  PlacementGraph graph = chainOf({5, 5, 1, 1});
  graph.deviceBytes = 3;
  PlacementMachine machine{2, 0, 3};
  EXPECT_DOUBLE_EQ(leastContiguousBytes(placementUnits(graph), machine, 1000),
                   7); // 5 | 5 1 1
  PlacementUnits any = placementUnits(graph, false);
  PlacementPlan packed = packBytes(any, machine);
  EXPECT_DOUBLE_EQ(packed.load, 6); // 5 1 | 5 1
  EXPECT_TRUE(packed.exact);
  // Largest first leaves 3 3 2 | 2 2 = 7 here; 3 3 | 2 2 2 is better.
  EXPECT_DOUBLE_EQ(
      packBytes(placementUnits(chainOf({3, 3, 2, 2, 2}), false), machine).load,
      6);
}

TEST(Placement, CyclesOfClassesBindContiguousPlacementsOnly) {
  PlacementGraph graph = chainOf({1, 1, 1});
  graph.deviceBytes = 100;
  graph.nodes[0].colorClass = graph.nodes[2].colorClass = 7;
  EXPECT_EQ(placementUnits(graph).size(), 1);
  EXPECT_EQ(placementUnits(graph, false).size(), 2);
}

/// A recurrent layer's last state, which nobody reads: without it the graph has
/// as many cuts as layers, and with it twice as many for each.
TEST(Placement, NodesThatCostNothingDoNotMultiplyCuts) {
  PlacementGraph graph = chainOf({5, 1, 4, 2, 6, 3, 1, 5, 2, 4});
  graph.deviceBytes = 1e9;
  graph.accelerators = 3;
  const int layers = static_cast<int>(graph.nodes.size());
  for (auto &edge : graph.edges)
    edge.cost = 0.5;
  auto solve = [&] {
    PlacementUnits units = placementUnits(graph);
    PlacementMachine machine{graph.accelerators, graph.cpus, graph.deviceBytes};
    PlacementPlan plan = searchContiguous(units, machine, 100);
    verifyPlacement(graph, units, machine, plan, true);
    return plan;
  };
  const PlacementPlan alone = solve();
  EXPECT_TRUE(alone.exact);
  for (int v = 0; v < layers; ++v) {
    PlacementNode state;
    state.id = "state" + std::to_string(v);
    state.colorClass = 100 + v;
    PlacementNode gradient = state;
    gradient.id += "grad";
    gradient.backward = true;
    PlacementNode back = gradient;
    back.id = "back" + std::to_string(v);
    back.colorClass = graph.nodes[static_cast<size_t>(v)].colorClass = v;
    const int first = static_cast<int>(graph.nodes.size());
    graph.nodes.insert(graph.nodes.end(), {state, gradient, back});
    graph.edges.push_back({v, first, 0.5});
    graph.edges.push_back({first + 1, first + 2, 0.25});
  }
  const PlacementPlan plan = solve();
  EXPECT_TRUE(plan.exact);
  EXPECT_LE(plan.load, alone.load);
}

TEST(Placement, BadFilesSayWhere) {
  Random random(33);
  json good = randomInstance(random, 4, false);
  auto message = [&](const std::function<void(json &)> &change) -> std::string {
    json bad = good;
    change(bad);
    try {
      parsePlacementGraph(bad.dump(), "g.json");
    } catch (const Failure &f) {
      EXPECT_EQ(f.code, Exit::BadModel);
      return f.what();
    }
    ADD_FAILURE() << "accepted " << bad.dump(1);
    return {};
  };
  auto has = [](const std::string &m, const std::string &part) {
    EXPECT_NE(m.find(part), std::string::npos) << m;
  };
  has(message([](json &b) { b.erase("nodes"); }), "\"nodes\"");
  has(message([](json &b) { b["nodes"][1].erase("fpgaLatency"); }), "node 1");
  has(message([](json &b) {
        b["edges"].push_back(b["edges"][0]);
        b["edges"].back()["cost"] = 77;
      }),
      "has another cost than the edges before it of node");
  has(message([](json &b) { b["nodes"][1]["cpuLatency"] = -1; }),
      "between 0 and 1e15");
  has(message([](json &b) { b["nodes"][1]["cpuLatency"] = 1e300; }),
      "between 0 and 1e15");
  has(message([](json &b) { b["nodes"][1]["cpuLatency"] = "x"; }),
      "not a number");
  has(message([](json &b) { b["nodes"][2]["id"] = 1; }), "twice");
  has(message([](json &b) { b["edges"][0]["destId"] = 77; }),
      "unknown node 77");
  has(message([](json &b) { b["maxFPGAs"] = 0, b["maxCPUs"] = 0; }),
      "no device");
  has(message([](json &b) { b["maxFPGAs"] = 1.5; }), "whole number");
  has(message([](json &b) {
        b["edges"].push_back({{"sourceId", b["edges"][0]["destId"]},
                              {"destId", b["edges"][0]["sourceId"]}});
        for (json &edge : b["edges"])
          edge["cost"] = 1;
      }),
      "cycle");
  has(message([](json &b) {
        json lonely = b["nodes"][0];
        lonely["id"] = 99;
        lonely["colorClass"] = 99;
        b["nodes"].push_back(lonely);
      }),
      "parts");
  try {
    parsePlacementGraph("{\n\"nodes\": [,]}", "g.json");
    FAIL();
  } catch (const Failure &f) {
    has(f.what(), "g.json:2");
  }
}
