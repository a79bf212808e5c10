#include "compiler/plan/published/StepObjective.h"

#include "compiler/plan/Planner.h"
#include "compiler/plan/published/JsonInput.h"
#include "compiler/plan/published/PipeDreamProfile.h"
#include "compiler/plan/published/PiperGraph.h"
#include "compiler/plan/published/PlacementGraph.h"
#include "support/Failure.h"

#include <algorithm>
#include <cmath>

namespace pipec::published {

namespace {

int64_t toBytes(double bytes) {
  return static_cast<int64_t>(std::llround(bytes));
}

/// The order whose largest frontier is smallest.
std::vector<int> narrowestOrder(const Dag &dag,
                                const std::vector<double> &output) {
  std::vector<int> best;
  double bestWidth = 0;
  for (const auto &order : linearOrders(dag, output)) {
    std::vector<size_t> pending(static_cast<size_t>(dag.size()));
    for (int v = 0; v < dag.size(); ++v)
      pending[v] = dag.out[v].size();
    double frontier = 0, width = 0;
    for (int v : order) {
      frontier += pending[v] ? output[v] : 0;
      for (int u : dag.in[v])
        if (--pending[u] == 0)
          frontier -= output[u];
      width += frontier;
    }
    if (best.empty() || width < bestWidth)
      best = order, bestWidth = width;
  }
  return best;
}

/// Values between ordered nodes: one per producer with a consumer.
void addValues(plan::CostGraph &graph, const Dag &dag,
               const std::vector<int> &order,
               const std::vector<double> &output) {
  std::vector<size_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    place[static_cast<size_t>(order[i])] = i;
  for (size_t i = 0; i < order.size(); ++i) {
    int v = order[i];
    if (dag.out[v].empty())
      continue;
    plan::CostValue value{i, toBytes(output[v]), toBytes(output[v]), {}};
    for (int w : dag.out[v])
      value.consumers.push_back(place[static_cast<size_t>(w)]);
    std::sort(value.consumers.begin(), value.consumers.end());
    graph.values.push_back(std::move(value));
  }
}

ConvertedGraph convertProfile(const PartitionOptions &options) {
  PipeDreamProfile profile = parsePipeDreamProfile(options.text, options.path);
  std::vector<double> output;
  for (const ProfileNode &node : profile.nodes)
    output.push_back(node.activationBytes);
  ConvertedGraph c;
  std::vector<int> order = narrowestOrder(profile.dag, output);
  for (int v : order) {
    const ProfileNode &from = profile.nodes[static_cast<size_t>(v)];
    plan::CostNode node;
    node.id = from.id;
    node.forwardSeconds = from.forwardMs / 1000;
    // The profile has one backward time; both of its parts are of a kind.
    bool weights = from.parameterBytes > 0;
    node.backwardInputSeconds = from.backwardMs / 1000 * (weights ? 0.5 : 1.0);
    node.backwardWeightSeconds = from.backwardMs / 1000 * (weights ? 0.5 : 0.0);
    node.parameterBytes = toBytes(from.parameterBytes);
    node.stashBytes = toBytes(from.activationBytes);
    c.graph.nodes.push_back(node);
    c.ids.push_back({from.id});
    c.nodes.push_back({from.id, from.description});
  }
  addValues(c.graph, profile.dag, order, output);
  for (int v = 0; v < profile.dag.size(); ++v)
    for (int w : profile.dag.out[v])
      c.edges.push_back({profile.nodes[static_cast<size_t>(v)].id,
                         profile.nodes[static_cast<size_t>(w)].id});
  return c;
}

ConvertedGraph convertPlacement(const PartitionOptions &options) {
  PlacementGraph graph = parsePlacementGraph(options.text, options.path);
  PlacementUnits units = placementUnits(graph);
  ConvertedGraph c;
  c.devices = graph.accelerators;
  c.memory = graph.deviceBytes;
  c.bandwidth = 1e9;
  // A transfer's milliseconds at one gigabyte a second.
  std::vector<double> output(static_cast<size_t>(units.size()), 0);
  for (const Transfer &t : units.transfers)
    if (std::all_of(t.consumers.begin(), t.consumers.end(),
                    [&](int u) { return u > t.producer; }))
      output[t.producer] += t.cost * 1e-3 * c.bandwidth;
  std::vector<int> order = narrowestOrder(units.order, output);
  std::vector<size_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    place[static_cast<size_t>(order[i])] = i;
  for (int u : order) {
    plan::CostNode node;
    node.id = "unit" + std::to_string(u);
    c.ids.emplace_back();
    for (int v : units.members[u]) {
      const PlacementNode &from = graph.nodes[static_cast<size_t>(v)];
      (from.backward ? node.backwardInputSeconds : node.forwardSeconds) +=
          from.latency / 1000;
      c.ids.back().push_back(from.id);
    }
    node.stateBytes = toBytes(units.bytes[u]);
    c.graph.nodes.push_back(node);
  }
  for (const Transfer &t : units.transfers) {
    size_t from = place[static_cast<size_t>(t.producer)];
    plan::CostValue value{from, toBytes(t.cost * 1e-3 * c.bandwidth), 0, {}};
    for (int u : t.consumers)
      if (place[static_cast<size_t>(u)] > from)
        value.consumers.push_back(place[static_cast<size_t>(u)]);
    // What flows against the order is a gradient of a later unit.
    for (int u : t.consumers)
      if (size_t to = place[static_cast<size_t>(u)]; to < from)
        c.graph.values.push_back({to, 0, value.bytes, {from}});
    std::sort(value.consumers.begin(), value.consumers.end());
    if (!value.consumers.empty())
      c.graph.values.push_back(std::move(value));
  }
  for (const PlacementNode &node : graph.nodes)
    c.nodes.push_back({node.id, node.name});
  for (const auto &edge : graph.edges)
    c.edges.push_back({graph.nodes[static_cast<size_t>(edge.from)].id,
                       graph.nodes[static_cast<size_t>(edge.to)].id});
  return c;
}

ConvertedGraph convertPiper(const PartitionOptions &options) {
  PiperGraph graph = parsePiperGraph(options.text, options.path);
  ConvertedGraph c;
  c.devices = graph.devices;
  c.microbatches = graph.microbatches;
  c.memory = graph.memory;
  c.bandwidth = graph.bandwidth;
  std::vector<double> output;
  for (const auto &bytes : graph.bytesOut)
    output.push_back(
        bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end()));
  std::vector<int> order = narrowestOrder(graph.dag, output);
  for (int v : order) {
    const PiperNode &from = graph.nodes[static_cast<size_t>(v)];
    auto it = from.variants.find(1);
    if (it == from.variants.end() || it->second.empty())
      throw Failure(
          Exit::BadModel,
          options.path + ": node " + from.id +
              " cannot run without tensor parallelism, which --objective "
              "step does not plan; use --objective piper");
    const PiperVariant &plain = it->second.front();
    plan::CostNode node;
    node.id = from.id;
    // Piper's time is forward and backward together: a third and two thirds.
    node.forwardSeconds = plain.seconds / 3;
    node.backwardInputSeconds = node.backwardWeightSeconds = plain.seconds / 3;
    node.parameterBytes = toBytes(plain.weights);
    node.stashBytes = toBytes(plain.memoryPerMicrobatch);
    c.graph.nodes.push_back(node);
    c.ids.push_back({from.id});
    c.nodes.push_back({from.id, from.name});
  }
  addValues(c.graph, graph.dag, order, output);
  for (int v = 0; v < graph.dag.size(); ++v)
    for (int w : graph.dag.out[v])
      c.edges.push_back({graph.nodes[static_cast<size_t>(v)].id,
                         graph.nodes[static_cast<size_t>(w)].id});
  return c;
}

} // namespace

ConvertedGraph convertGraph(const PartitionOptions &options,
                            GraphFormat format) {
  switch (format) {
  case GraphFormat::PipeDream:
    return convertProfile(options);
  case GraphFormat::Placement:
    return convertPlacement(options);
  case GraphFormat::Piper:
    return convertPiper(options);
  }
  throw Failure(Exit::Internal, "unknown graph format");
}

/// The planner's memory grows with the square of the devices.
static void expectPlannable(int64_t devices, GraphFormat format) {
  if (devices <= plan::kMostDevices)
    return;
  throw Failure(Exit::Usage, "--objective step plans at most " +
                                 std::to_string(plan::kMostDevices) +
                                 " devices, not " + std::to_string(devices) +
                                 "; give fewer with --devices" +
                                 (format == GraphFormat::Piper
                                      ? ", or --objective piper, which "
                                        "searches for up to a million"
                                      : ""));
}

/// A step is simulated task by task, and its bytes are counted in whole
/// numbers.
static void expectCountable(const plan::PlanRequest &request) {
  const double devices = request.topology.devices();
  constexpr double mostTasks = 1 << 22, mostMicrobatches = 1 << 17;
  const double most = std::min(mostTasks / devices, mostMicrobatches);
  if (request.microbatches > most)
    throw Failure(
        Exit::Usage,
        "--objective step simulates a step, which " +
            std::to_string(request.microbatches) + " microbatches on " +
            std::to_string(request.topology.devices()) +
            " devices are too many tasks for; give --microbatches " +
            std::to_string(std::max(1, static_cast<int>(most))) + " or fewer");
  double bytes = 0;
  for (const plan::CostNode &node : request.graph.nodes)
    bytes += static_cast<double>(node.parameterBytes) +
             static_cast<double>(node.stashBytes + node.stateBytes);
  for (const plan::CostValue &value : request.graph.values)
    bytes += static_cast<double>(value.bytes + value.gradientBytes);
  if (bytes * request.microbatches > mostBytesOfGraph)
    throw Failure(Exit::BadModel, "the sizes of " +
                                      std::to_string(request.microbatches) +
                                      " microbatches add up to more than 1e18 "
                                      "bytes, which --objective step does not "
                                      "count");
}

/// At least servers of devices; those of a single level are one server's.
static std::vector<plan::Level> levelsFor(const PartitionOptions &options,
                                          const ConvertedGraph &graph) {
  std::vector<int> machines = options.devices;
  if (machines.empty())
    machines = {graph.devices};
  if (machines.size() == 1)
    machines.insert(machines.begin(), 1);
  std::vector<double> bandwidths = bandwidthsOf(options, machines.size());
  if (bandwidths.empty())
    bandwidths.assign(machines.size(), graph.bandwidth);
  if (bandwidths[0] <= 0)
    throw Failure(
        Exit::Usage,
        "this graph names no bandwidth; give --bandwidth INTER,INTRA");
  std::vector<plan::Level> levels;
  for (size_t l = 0; l < machines.size(); ++l)
    levels.push_back({l + 1 == machines.size() ? "gpu" : "server", machines[l],
                      bandwidths[l], 0});
  return levels;
}

/// What is asked of the planner; the graph moves there.
static plan::PlanRequest requestFor(const PartitionOptions &options,
                                    ConvertedGraph &converted,
                                    int64_t devices) {
  plan::PlanRequest request;
  request.graph = std::move(converted.graph);
  request.topology.device = plan::deviceModel("a100-80g");
  request.topology.levels = levelsFor(options, converted);
  request.strategy =
      plan::strategyFacts(options.strategy.empty() ? "1f1b" : options.strategy);
  request.microbatches = options.microbatches > 0        ? options.microbatches
                         : !request.strategy.synchronous ? 1
                         : converted.microbatches > 0
                             ? converted.microbatches
                             : static_cast<int>(4 * devices);
  double memory =
      options.memoryLimit > 0 ? options.memoryLimit : converted.memory;
  request.memoryLimit = memory > 0 && memory < mostBytesOfGraph
                            ? std::max<int64_t>(1, std::llround(memory))
                            : -1;
  request.recompute = plan::Recompute::Auto;
  return request;
}

static PartitionStage stageOf(const plan::StagePlan &from,
                              const ConvertedGraph &converted) {
  PartitionStage stage;
  for (size_t i = from.firstNode; i <= from.lastNode; ++i) {
    const std::vector<std::string> &ids = converted.ids[i];
    stage.nodes.insert(stage.nodes.end(), ids.begin(), ids.end());
    if (from.recompute)
      stage.recomputed.insert(stage.recomputed.end(), ids.begin(), ids.end());
  }
  stage.replicas = from.replicas;
  stage.devices = from.devices;
  stage.load = (from.forwardSeconds + from.backwardInputSeconds +
                from.backwardWeightSeconds) *
               1000 / from.replicas;
  return stage;
}

Partition partitionByStep(const PartitionOptions &options, GraphFormat format) {
  ConvertedGraph converted = convertGraph(options, format);
  const int64_t devices =
      options.devices.empty() ? converted.devices : devicesOf(options);
  if (devices < 1)
    throw Failure(Exit::Usage,
                  "this graph names no devices; give --devices NxM");
  expectPlannable(devices, format);
  const plan::PlanRequest request = requestFor(options, converted, devices);
  expectCountable(request);
  plan::PlanResult plan = plan::makePlan(request);

  Partition result;
  result.objectiveName = "step";
  result.unit = "ms";
  result.objective = plan.stepSeconds * 1000;
  for (const plan::Baseline &baseline : plan.baselines)
    if (baseline.name == "data parallel" && baseline.fits)
      result.dataParallel = baseline.stepSeconds * 1000;
  double work = 0;
  for (const plan::CostNode &node : request.graph.nodes)
    work += node.forwardSeconds + node.backwardInputSeconds +
            node.backwardWeightSeconds;
  result.bound =
      work * request.microbatches / static_cast<double>(devices) * 1000;
  result.states = request.graph.nodes.size() + 1;
  for (const plan::StagePlan &from : plan.stages)
    result.stages.push_back(stageOf(from, converted));
  result.binding = plan.bottleneck;
  result.nodes = std::move(converted.nodes);
  result.edges = std::move(converted.edges);
  return result;
}

} // namespace pipec::published
