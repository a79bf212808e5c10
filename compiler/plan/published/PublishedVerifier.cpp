#include "compiler/plan/published/PublishedVerifier.h"

#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace pipec::published {

namespace {

void expect(bool holds, const std::string &message) {
  if (!holds)
    throw Failure(Exit::Internal, "the partition does not hold: " + message +
                                      "; please report this with the graph");
}

double expectNoMore(double found, double claimed) {
  expect(found <= claimed * (1 + 1e-9) + 1e-12,
         "it costs " + std::to_string(found) + ", not " +
             std::to_string(claimed));
  return found;
}

/// Stage of every node; each exactly once.
std::vector<int> stageOf(size_t nodes,
                         const std::vector<std::vector<int>> &stages) {
  std::vector<int> where(nodes, -1);
  for (size_t s = 0; s < stages.size(); ++s) {
    expect(!stages[s].empty(), "stage " + std::to_string(s) + " is empty");
    for (int v : stages[s]) {
      expect(where[static_cast<size_t>(v)] < 0, "a node is in two stages");
      where[static_cast<size_t>(v)] = static_cast<int>(s);
    }
  }
  expect(std::find(where.begin(), where.end(), -1) == where.end(),
         "a node is in no stage");
  return where;
}

void expectForward(const Dag &dag, const std::vector<int> &where) {
  for (int v = 0; v < dag.size(); ++v)
    for (int w : dag.out[v])
      expect(where[v] <= where[w], "an edge runs backwards");
}

/// One profile's sums over sets of nodes.
struct Sums {
  const PipeDreamProfile &profile;
  double seconds(const std::vector<int> &nodes) const {
    double sum = 0;
    for (int v : nodes)
      sum += profile.nodes[static_cast<size_t>(v)].milliseconds() / 1000;
    return sum;
  }
  double weights(const std::vector<int> &nodes) const {
    double sum = 0;
    for (int v : nodes)
      sum += profile.nodes[static_cast<size_t>(v)].parameterBytes;
    return sum;
  }
  /// Outputs that cross from before `boundary` to it or later.
  double crossing(const std::vector<int> &where, int boundary) const {
    double sum = 0;
    for (int v = 0; v < profile.dag.size(); ++v) {
      bool leaves =
          std::any_of(profile.dag.out[v].begin(), profile.dag.out[v].end(),
                      [&](int w) { return where[w] >= boundary; });
      if (where[v] < boundary && leaves)
        sum += profile.nodes[static_cast<size_t>(v)].activationBytes;
    }
    return sum;
  }
};

double straddlingSeconds(const Sums &sums, const std::vector<int> &where,
                         const std::vector<std::vector<int>> &nodes,
                         const std::vector<PipeDreamLevel> &levels,
                         const PipeDreamPlan &plan) {
  int each = levels[0].machines;
  double intra = levels[0].bandwidth, inter = levels[1].bandwidth, worst = 0;
  for (size_t s = 0; s < nodes.size(); ++s) {
    std::map<int, int> onServer;
    for (int d : plan.stages[s].devices)
      ++onServer[d / each];
    double g = 0, servers = static_cast<double>(onServer.size()),
           r = plan.stages[s].replicas;
    for (auto [server, count] : onServer)
      g = std::max(g, static_cast<double>(count));
    double w = sums.weights(nodes[s]);
    worst = std::max(worst,
                     (sums.seconds(nodes[s]) + 4 * (g - 1) * w / (intra * g) +
                      4 * (servers - 1) * w / (inter * servers)) /
                         r);
    if (s == 0)
      continue;
    double bytes = sums.crossing(where, static_cast<int>(s));
    const auto &from = plan.stages[s - 1].devices, &to = plan.stages[s].devices;
    worst = std::max(
        worst,
        2 * bytes /
            (intra * static_cast<double>(std::min(from.size(), to.size()))));
    size_t period = std::lcm(from.size(), to.size());
    std::map<int, double> card;
    for (size_t k = 0; k < period; ++k) {
      int a = from[k % from.size()] / each, b = to[k % to.size()] / each;
      if (a != b)
        card[a] += 2 * bytes / static_cast<double>(period),
            card[b] += 2 * bytes / static_cast<double>(period);
    }
    for (auto [server, load] : card)
      worst = std::max(worst, load / inter);
  }
  return worst;
}

/// One level's stages in a row: cost of each from its compute seconds.
struct LevelStage {
  double compute, weights, cutIn, cutOut;
  int machines;
  bool first, last; ///< of the level's chain; of the whole model
};
double levelSeconds(const std::vector<LevelStage> &stages, double bandwidth,
                    double within) {
  double worst = 0;
  for (const LevelStage &s : stages) {
    double m = s.machines, reduce = 4 * (m - 1) * s.weights / (bandwidth * m);
    worst =
        std::max(worst, (s.compute + (s.first ? reduce / within : reduce)) / m);
    if (s.first)
      continue;
    worst = std::max(worst, 2 * s.cutIn / (bandwidth * m));
    if (!s.last)
      worst = std::max(worst, 2 * s.cutOut / (bandwidth * m));
  }
  return worst;
}

double nestedSeconds(const Sums &sums, const std::vector<int> &where,
                     const std::vector<std::vector<int>> &nodes,
                     const std::vector<PipeDreamLevel> &levels,
                     const PipeDreamPlan &plan) {
  std::vector<LevelStage> outer;
  int stage = 0, total = static_cast<int>(nodes.size());
  for (const auto &group : plan.outer) {
    std::vector<LevelStage> inner;
    int machines = 0;
    double weights = 0, entering = sums.crossing(where, stage);
    for (size_t i = 0; i < group.inner.size(); ++i, ++stage) {
      const auto &list = nodes[static_cast<size_t>(stage)];
      inner.push_back({sums.seconds(list), sums.weights(list),
                       sums.crossing(where, stage),
                       sums.crossing(where, stage + 1), group.inner[i].replicas,
                       i == 0, stage + 1 == total});
      machines += group.inner[i].replicas;
      weights += sums.weights(list);
    }
    expect(machines <= levels[0].machines, "a server has too few devices");
    outer.push_back({levelSeconds(inner, levels[0].bandwidth, 1), weights,
                     entering, sums.crossing(where, stage), group.machines,
                     outer.empty(), stage == total});
  }
  if (levels.size() == 1)
    return outer[0].compute;
  return levelSeconds(outer, levels[1].bandwidth, levels[0].machines);
}

} // namespace

double verifyPipeDream(const PipeDreamProfile &profile, const CutStates &states,
                       const std::vector<PipeDreamLevel> &levels,
                       const PipeDreamPlan &plan, bool straddles,
                       double limit) {
  std::vector<std::vector<int>> nodes;
  std::set<int> devices;
  int total = 1;
  for (const PipeDreamLevel &level : levels)
    total *= level.machines;
  for (const PipeDreamStage &s : plan.stages) {
    nodes.push_back(states.between(s.before, s.after));
    expect(s.replicas == static_cast<int>(s.devices.size()),
           "replicas and devices differ");
    for (int d : s.devices)
      expect(d >= 0 && d < total && devices.insert(d).second,
             "a device is used twice");
  }
  std::vector<int> where = stageOf(profile.nodes.size(), nodes);
  expectForward(profile.dag, where);
  int fromHere = 0;
  for (size_t s = nodes.size(); s-- > 0 && limit > 0;) {
    int replicas = plan.stages[s].replicas;
    fromHere += replicas;
    double bytes = 0;
    for (int v : nodes[s])
      bytes += profile.nodes[static_cast<size_t>(v)].parameterBytes +
               profile.nodes[static_cast<size_t>(v)].activationBytes;
    double inFlight = std::ceil(static_cast<double>(fromHere) / replicas);
    expect(bytes * inFlight <= limit, "memory is exceeded");
  }
  Sums sums{profile};
  double found = straddles ? straddlingSeconds(sums, where, nodes, levels, plan)
                           : nestedSeconds(sums, where, nodes, levels, plan);
  return expectNoMore(found, plan.seconds);
}

double verifyPlacement(const PlacementGraph &graph, const PlacementUnits &units,
                       const PlacementMachine &machine,
                       const PlacementPlan &plan, bool contiguous) {
  std::vector<std::vector<int>> nodes;
  int accelerators = 0, cpus = 0;
  for (const auto &device : plan.devices) {
    nodes.emplace_back();
    for (int u : device.units)
      nodes.back().insert(nodes.back().end(), units.members[u].begin(),
                          units.members[u].end());
    (device.cpu ? cpus : accelerators) += 1;
  }
  expect(accelerators <= machine.accelerators && cpus <= machine.cpus,
         "too many devices");
  std::vector<int> where = stageOf(graph.nodes.size(), nodes);
  std::map<long long, int> ofColor;
  std::vector<double> load(nodes.size(), 0), bytes(nodes.size(), 0);
  auto cpu = [&](int d) { return plan.devices[static_cast<size_t>(d)].cpu; };
  for (size_t v = 0; v < graph.nodes.size(); ++v) {
    const PlacementNode &node = graph.nodes[v];
    if (node.colorClass)
      expect(ofColor.emplace(*node.colorClass, where[v]).first->second ==
                 where[v],
             "a colour class is split");
    expect(cpu(where[v]) || node.onAccelerator,
           "a node is on an accelerator that cannot run it");
    load[where[v]] += cpu(where[v]) ? node.cpuLatency : node.latency;
    bytes[where[v]] += node.bytes;
  }
  for (size_t d = 0; d < nodes.size(); ++d)
    expect(plan.devices[d].cpu || bytes[d] <= machine.bytes * (1 + 1e-12),
           "memory is exceeded");
  std::map<int, std::pair<double, std::set<int>>>
      outputs; // node -> cost, other devices
  for (const auto &edge : graph.edges) {
    if (contiguous && !graph.nodes[static_cast<size_t>(edge.from)].backward &&
        !graph.nodes[static_cast<size_t>(edge.to)].backward)
      expect(where[edge.from] <= where[edge.to],
             "a forward edge runs backwards");
    if (where[edge.from] == where[edge.to])
      continue;
    auto &out = outputs[edge.from];
    out.first = std::max(out.first, edge.cost);
    out.second.insert(where[edge.to]);
  }
  for (const auto &[v, out] : outputs) {
    if (!cpu(where[v]))
      load[where[v]] += out.first;
    for (int d : out.second)
      if (!cpu(d))
        load[static_cast<size_t>(d)] += out.first;
  }
  return expectNoMore(*std::max_element(load.begin(), load.end()), plan.load);
}

double verifyPiper(const PiperGraph &graph, const PiperPlan &plan) {
  std::vector<std::vector<int>> nodes;
  int devices = 0, replicas = 0;
  for (const PiperPlanStage &s : plan.stages) {
    nodes.push_back(s.nodes);
    expect(graph.microbatches % s.replicas == 0,
           "replicas do not divide the microbatches");
    devices += s.replicas * s.degree;
    replicas += s.replicas;
  }
  expect(devices <= graph.devices && replicas <= graph.microbatches,
         "too many devices");
  std::vector<int> where = stageOf(graph.nodes.size(), nodes);
  expectForward(graph.dag, where);
  double worst = 0;
  for (size_t s = 0; s < nodes.size(); ++s) {
    const PiperPlanStage &stage = plan.stages[s];
    double d = stage.replicas, compute = 0, edges = 0, weights = 0, memory = 0;
    int y = (replicas + stage.replicas - 1) / stage.replicas;
    replicas -= stage.replicas;
    for (size_t i = 0; i < stage.nodes.size(); ++i) {
      int v = stage.nodes[i];
      const PiperVariant &variant =
          graph.nodes[static_cast<size_t>(v)]
              .variants.at(stage.degree)
              .at(static_cast<size_t>(stage.variants[i]));
      compute += variant.seconds;
      weights += variant.weights;
      memory += variant.memoryPerMicrobatch * y + variant.memoryFixed;
      for (size_t e = 0; e < graph.dag.in[v].size(); ++e)
        if (where[graph.dag.in[v][e]] != static_cast<int>(s))
          edges += 2 * (graph.bytesIn[v][e] + variant.syncIn[e]);
      for (size_t e = 0; e < graph.dag.out[v].size(); ++e)
        if (where[graph.dag.out[v][e]] != static_cast<int>(s))
          edges += 2 * (graph.bytesOut[v][e] + variant.syncOut[e]);
    }
    expect(memory <= graph.memory * (1 + 1e-9), "memory is exceeded");
    double bytes = edges / d + 4 * (d - 1) * weights / d / graph.microbatches;
    worst = std::max(worst, bytes / graph.bandwidth + compute / d);
  }
  return expectNoMore(worst, plan.seconds);
}

} // namespace pipec::published
