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

/// What crosses between two stages on these devices, over the links of devices
/// and over the card of every machine of every level.
double boundarySeconds(const std::vector<PipeDreamLevel> &levels,
                       const std::vector<int> &from, const std::vector<int> &to,
                       double bytes) {
  double worst = 2 * bytes /
                 (levels[0].bandwidth *
                  static_cast<double>(std::min(from.size(), to.size())));
  const size_t period = std::lcm(from.size(), to.size());
  int each = levels[0].machines;
  for (size_t l = 1; l < levels.size(); each *= levels[l++].machines) {
    std::map<int, double> card;
    for (size_t k = 0; k < period; ++k) {
      int a = from[k % from.size()] / each, b = to[k % to.size()] / each;
      if (a != b)
        card[a] += 2 * bytes / static_cast<double>(period),
            card[b] += 2 * bytes / static_cast<double>(period);
    }
    for (auto [machine, load] : card)
      worst = std::max(worst, load / levels[l].bandwidth);
  }
  return worst;
}

/// What a stage on these devices exchanges, level by level: of the component
/// in which it has the most machines.
double exchangeSeconds(const std::vector<PipeDreamLevel> &levels,
                       const std::vector<int> &devices, double weights) {
  double seconds = 0;
  int each = 1;
  for (const PipeDreamLevel &level : levels) {
    std::map<int, std::set<int>> machines; // of every component
    for (int d : devices)
      machines[d / each / level.machines].insert(d / each);
    double most = 0;
    for (const auto &[component, some] : machines)
      most = std::max(most, static_cast<double>(some.size()));
    seconds += 4 * (most - 1) * weights / (level.bandwidth * most);
    each *= level.machines;
  }
  return seconds;
}

double straddlingSeconds(const Sums &sums, const std::vector<int> &where,
                         const std::vector<std::vector<int>> &nodes,
                         const std::vector<PipeDreamLevel> &levels,
                         const PipeDreamPlan &plan) {
  double worst = 0;
  for (size_t s = 0; s < nodes.size(); ++s) {
    const auto &devices = plan.stages[s].devices;
    worst = std::max(
        worst, (sums.seconds(nodes[s]) +
                exchangeSeconds(levels, devices, sums.weights(nodes[s]))) /
                   plan.stages[s].replicas);
    if (s > 0)
      worst = std::max(
          worst, boundarySeconds(levels, plan.stages[s - 1].devices, devices,
                                 sums.crossing(where, static_cast<int>(s))));
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

/// What one component of a level takes for the plan's stages from `stage` on,
/// which moves behind them; their weights are added up.
struct Nested {
  const Sums &sums;
  const std::vector<int> &where;
  const std::vector<std::vector<int>> &nodes;
  const std::vector<PipeDreamLevel> &levels;
  const PipeDreamPlan &plan;
  int stage = 0;

  /// So many devices in each of as many components of the innermost level.
  void expectReplicas(int copies, int machines) const {
    expect(stage < static_cast<int>(nodes.size()), "there are more stages");
    std::map<int, int> found;
    for (int d : plan.stages[static_cast<size_t>(stage)].devices)
      ++found[d / levels[0].machines];
    expect(static_cast<int>(found.size()) == copies, "replicas are elsewhere");
    for (auto [component, count] : found)
      expect(count == machines, "replicas are not alike");
  }

  double seconds(size_t level, const std::vector<PipeDreamGroup> &groups,
                 int copies, double &weights) {
    std::vector<LevelStage> row;
    int machines = 0;
    for (const PipeDreamGroup &group : groups) {
      LevelStage s{
          0,           0,    sums.crossing(where, stage), 0, group.machines,
          row.empty(), false};
      if (level > 0) {
        expect(!group.within.empty(), "a machine has no stages");
        s.compute = seconds(level - 1, group.within, copies * group.machines,
                            s.weights);
      } else {
        expectReplicas(copies, group.machines);
        const auto &list = nodes[static_cast<size_t>(stage++)];
        s.compute = sums.seconds(list), s.weights = sums.weights(list);
      }
      s.cutOut = sums.crossing(where, stage);
      s.last = stage == static_cast<int>(nodes.size());
      machines += group.machines;
      weights += s.weights;
      row.push_back(s);
    }
    expect(machines <= levels[level].machines,
           "a component has too few machines");
    return levelSeconds(row, levels[level].bandwidth,
                        level == 0 ? 1 : levels[level - 1].machines);
  }
};

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
  if (straddles)
    return expectNoMore(straddlingSeconds(sums, where, nodes, levels, plan),
                        plan.seconds);
  Nested nested{sums, where, nodes, levels, plan};
  double weights = 0;
  double found = nested.seconds(levels.size() - 1, plan.groups, 1, weights);
  expect(nested.stage == static_cast<int>(nodes.size()),
         "stages are left over");
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
