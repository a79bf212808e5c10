#include "BruteForce.h"
#include "RandomGraphs.h"
#include "compiler/plan/published/PublishedVerifier.h"
#include "support/Failure.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <limits>

using namespace pipec;
using namespace pipec::published;
using nlohmann::json;
using pipec::plan::test::Random;
using pipec::plan::test::rounds;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

json randomInstance(Random &random, int nodes) {
  json root = {{"maxDevices", random.between(1, 6)},
               {"maxMemoryPerDevice", random.between(20, 200) * 1.0},
               {"bandwidth", random.real(5, 100)},
               {"mbsInBatch", random.between(1, 2) * 6},
               {"nodes", json::array()},
               {"edges", json::array()}};
  std::vector<std::vector<int>> in(static_cast<size_t>(nodes)),
      out(static_cast<size_t>(nodes));
  for (int v = 1; v < nodes; ++v) {
    int u = random.between(0, v - 1);
    for (int from :
         {u, random.between(0, 2) == 0 ? random.between(0, v - 1) : u}) {
      if (!in[v].empty() && in[v].back() == from)
        continue;
      in[v].push_back(from), out[from].push_back(v);
      root["edges"].push_back(
          {{"sourceId", from},
           {"destId", v},
           {"communicationCost", random.between(0, 30) * 1.0}});
    }
  }
  for (int v = 0; v < nodes; ++v) {
    json table = json::object();
    for (int t : {1, 2}) {
      if (t == 2 && random.between(0, 1))
        continue;
      double seconds = random.between(1, 30) / (t == 2 ? 1.6 : 1.0);
      double weights = random.between(0, 20) * 1.0, a = random.between(1, 30),
             b = weights * 2;
      json list = json::array();
      for (int l = 0; l < 2; ++l) {
        json variant = {{"id", l ? "recomputed" : "plain"},
                        {"timePerSample", seconds * (l ? 1.3 : 1.0)},
                        {"parameterSize", weights},
                        {"memoryUsageA", l ? a / 4 : a},
                        {"memoryUsageB", l ? b + a / 2 : b},
                        {"syncTimeFw", json::object()},
                        {"syncTimeBw", json::object()}};
        for (int u : in[v])
          variant["syncTimeFw"][std::to_string(u)] =
              random.between(0, 5) * (t - 1.0);
        for (int w : out[v])
          variant["syncTimeBw"][std::to_string(w)] =
              random.between(0, 5) * (t - 1.0);
        list.push_back(variant);
      }
      table[std::to_string(t)] = list;
    }
    root["nodes"].push_back({{"id", v}, {"name", "layer"}, {"TMPCs", table}});
  }
  return root;
}

/// Every chain of stages, degree, replicas and variants.
double bruteForce(const PiperGraph &graph) {
  unsigned n = static_cast<unsigned>(graph.nodes.size()), all = (1u << n) - 1;
  std::vector<unsigned> suffixes;
  for (unsigned set = 0; set <= all; ++set) {
    bool ok = true;
    for (unsigned v = 0; v < n && ok; ++v)
      if (set >> v & 1)
        for (int w : graph.dag.out[v])
          ok &= set >> w & 1;
    if (ok)
      suffixes.push_back(set);
  }
  auto stageSeconds = [&](unsigned nodes, int t, int d, int y) {
    double best = inf;
    std::function<void(unsigned, double, double, double)> go =
        [&](unsigned v, double bytes, double compute, double memory) {
          if (v == n) {
            if (memory <= graph.memory)
              best = std::min(best, bytes / graph.bandwidth + compute);
            return;
          }
          if (!(nodes >> v & 1))
            return go(v + 1, bytes, compute, memory);
          auto it = graph.nodes[v].variants.find(t);
          if (it == graph.nodes[v].variants.end())
            return;
          for (const PiperVariant &variant : it->second) {
            double edges = 0;
            for (size_t e = 0; e < graph.dag.in[v].size(); ++e)
              if (!(nodes >> graph.dag.in[v][e] & 1))
                edges += 2 * (graph.bytesIn[v][e] + variant.syncIn[e]);
            for (size_t e = 0; e < graph.dag.out[v].size(); ++e)
              if (!(nodes >> graph.dag.out[v][e] & 1))
                edges += 2 * (graph.bytesOut[v][e] + variant.syncOut[e]);
            double exchange =
                4.0 * (d - 1) * variant.weights / d / graph.microbatches;
            go(v + 1, bytes + edges / d + exchange,
               compute + variant.seconds / d,
               memory + variant.memoryPerMicrobatch * y + variant.memoryFixed);
          }
        };
    go(0, 0, 0, 0);
    return best;
  };
  double best = inf;
  // From the last stage to the first: what comes later decides what is in
  // flight.
  std::function<void(unsigned, int, int, double)> go =
      [&](unsigned suffix, int devices, int replicas, double worst) {
        if (worst >= best)
          return;
        if (suffix == all) {
          best = worst;
          return;
        }
        for (unsigned next : suffixes) {
          if (next == suffix || (suffix & ~next))
            continue;
          for (int t : {1, 2})
            for (int d = 1; devices + d * t <= graph.devices &&
                            replicas + d <= graph.microbatches;
                 ++d)
              if (graph.microbatches % d == 0) {
                int y = (replicas + d + d - 1) / d;
                go(next, devices + d * t, replicas + d,
                   std::max(worst, stageSeconds(next & ~suffix, t, d, y)));
              }
        }
      };
  go(0, 0, 0, 0);
  return best;
}

} // namespace

TEST(Piper, EqualsBruteForce) {
  Random random(41);
  int infeasible = 0, tensor = 0, recomputed = 0, replicated = 0;
  for (int round = 0; round < rounds(600); ++round) {
    json instance = randomInstance(random, random.between(1, 4));
    PiperGraph graph = parsePiperGraph(instance.dump(), "random");
    PiperPlan plan = searchPiper(graph, 1000);
    double want = bruteForce(graph);
    if (want == inf) {
      EXPECT_TRUE(plan.stages.empty()) << round;
      double enough = leastPiperMemory(graph, 1000);
      graph.memory = enough;
      EXPECT_FALSE(searchPiper(graph, 1000).stages.empty()) << round;
      graph.memory = enough * (1 - 2e-3);
      EXPECT_TRUE(searchPiper(graph, 1000).stages.empty()) << round;
      ++infeasible;
      continue;
    }
    ASSERT_FALSE(plan.stages.empty()) << round << instance.dump(1);
    ASSERT_NEAR(plan.seconds, want, 1e-8 * want) << round << instance.dump(1);
    verifyPiper(graph, plan);
    EXPECT_LE(plan.bound, want * (1 + 1e-9));
    for (const PiperPlanStage &s : plan.stages) {
      tensor += s.degree > 1;
      replicated += s.replicas > 1;
      for (int variant : s.variants)
        recomputed += variant;
    }
  }
  EXPECT_GT(infeasible, 10);
  EXPECT_GT(tensor, 20);
  EXPECT_GT(recomputed, 20);
  EXPECT_GT(replicated, 20);
}

TEST(Piper, BadFilesSayWhere) {
  Random random(42);
  json good = randomInstance(random, 3);
  auto message = [&](const std::function<void(json &)> &change) -> std::string {
    json bad = good;
    change(bad);
    try {
      parsePiperGraph(bad.dump(), "g.json");
    } catch (const Failure &f) {
      EXPECT_EQ(f.code, Exit::BadModel);
      return f.what();
    }
    ADD_FAILURE() << "accepted";
    return {};
  };
  auto has = [](const std::string &m, const std::string &part) {
    EXPECT_NE(m.find(part), std::string::npos) << m;
  };
  has(message([](json &b) { b["maxDevices"] = 0; }), "maxDevices");
  has(message([](json &b) { b["bandwidth"] = 0; }), "above 0");
  has(message([](json &b) { b["nodes"] = json::array(); }), "no nodes");
  has(message([](json &b) { b["nodes"][0]["TMPCs"]["zero"] = json::array(); }),
      "degree zero");
  has(message([](json &b) {
        b["nodes"][0]["TMPCs"]["1"][0].erase("timePerSample");
      }),
      "timePerSample");
  has(message([](json &b) {
        b["nodes"][0]["TMPCs"]["1"][0]["syncTimeFw"]["9"] = 1;
      }),
      "no neighbours");
  has(message([](json &b) {
        auto &sync = b["nodes"][0]["TMPCs"]["1"][0]["syncTimeBw"];
        sync.erase(sync.begin());
      }),
      "syncTimeBw");
  has(message([](json &b) { b["edges"].push_back(b["edges"][0]); }), "twice");
}
