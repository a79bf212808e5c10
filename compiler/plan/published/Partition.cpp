#include "compiler/plan/published/Partition.h"

#include "compiler/plan/Infeasible.h"
#include "compiler/plan/published/PublishedVerifier.h"
#include "compiler/plan/published/StepObjective.h"
#include "support/Clock.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <numeric>

namespace pipec::published {

namespace {

std::string short4(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// Processor time of this process: the searches run on one thread, so this is
/// what they take on an idle machine.
double processorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

//===----------------------------------------------------------------------===//
// dnn-partitioning
//===----------------------------------------------------------------------===//

constexpr size_t placementCuts = 100'000;

[[noreturn]] void placementDoesNotFit(const PlacementMachine &machine,
                                      double enough) {
  enough = std::ceil(enough);
  throw Failure(Exit::NoFit,
                "nothing fits in " +
                    plan::formatBytes(static_cast<int64_t>(machine.bytes)) +
                    " an accelerator: " +
                    plan::formatBytes(static_cast<int64_t>(
                        std::ceil(enough - machine.bytes))) +
                    " are missing; it would fit with --memory-limit " +
                    std::to_string(static_cast<int64_t>(enough)));
}

/// Everything runs on a CPU; without one, accelerators must run all nodes.
void expectSupported(const PlacementGraph &graph,
                     const PlacementMachine &machine) {
  if (machine.cpus > 0)
    return;
  for (const PlacementNode &node : graph.nodes)
    if (!node.onAccelerator)
      throw Failure(Exit::NoFit,
                    "nothing fits: node " + node.id +
                        " runs on a CPU only, and there is none; set maxCPUs");
}

/// The same placement in other units of the same graph. Units differ in what
/// free nodes they hold: the costliest member decides where a unit goes.
PlacementPlan inUnits(const PlacementGraph &graph, const PlacementPlan &plan,
                      const PlacementUnits &from, const PlacementUnits &to,
                      const PlacementMachine &machine) {
  std::vector<int> deviceOf(graph.nodes.size(), 0);
  int accelerator = 0, cpu = machine.accelerators;
  for (const auto &device : plan.devices) {
    int number = device.cpu ? cpu++ : accelerator++;
    for (int u : device.units)
      for (int v : from.members[static_cast<size_t>(u)])
        deviceOf[static_cast<size_t>(v)] = number;
  }
  std::vector<int> unitOn;
  for (const auto &members : to.members) {
    auto weight = [&](int v) {
      const PlacementNode &node = graph.nodes[static_cast<size_t>(v)];
      return node.latency + node.cpuLatency + node.bytes;
    };
    int heaviest =
        *std::max_element(members.begin(), members.end(),
                          [&](int a, int b) { return weight(a) < weight(b); });
    unitOn.push_back(deviceOf[static_cast<size_t>(heaviest)]);
  }
  return placementOf(to, machine, unitOn);
}

/// The best placement of any shape that is found, from `start` (contiguous, or
/// without devices when no contiguous one fits) on.
PlacementPlan freePlacement(const PlacementGraph &graph,
                            const PlacementUnits &contiguous,
                            const PlacementUnits &units,
                            const PlacementMachine &machine,
                            const PlacementPlan &start) {
  PlacementPlan first;
  if (!start.devices.empty()) {
    first = inUnits(graph, start, contiguous, units, machine);
  } else {
    PlacementPlan packed = packBytes(units, machine);
    if (packed.load > machine.bytes)
      placementDoesNotFit(machine, packed.load);
    std::vector<int> deviceOf(static_cast<size_t>(units.size()), 0);
    for (size_t d = 0; d < packed.devices.size(); ++d)
      for (int u : packed.devices[d].units)
        deviceOf[static_cast<size_t>(u)] = static_cast<int>(d);
    first = placementOf(units, machine, deviceOf);
  }
  first.states = start.states;
  PlacementPlan plan = searchFree(units, machine, first, 3'000'000);
  plan.exact = plan.load <= placementBound(units, machine) * (1 + 1e-9);
  if (!plan.exact)
    proveFree(units, machine, plan);
  return plan;
}

Partition partitionPlacement(const PartitionOptions &options) {
  PlacementGraph graph = parsePlacementGraph(options.text, options.path);
  PlacementMachine machine{graph.accelerators, graph.cpus, graph.deviceBytes};
  if (!options.devices.empty())
    machine.accelerators = static_cast<int>(devicesOf(options));
  if (options.memoryLimit > 0)
    machine.bytes = graph.deviceBytes = options.memoryLimit;
  if (!options.contiguous && machine.accelerators + machine.cpus > 64)
    throw Failure(Exit::Usage,
                  "--shape free is searched for at most 64 devices; contiguous "
                  "placements for more");
  if (machine.accelerators > 256 || machine.cpus > 64)
    throw Failure(
        Exit::Usage,
        "placement is searched for at most 256 accelerators and 64 CPUs");
  expectSupported(graph, machine);
  PlacementUnits units = placementUnits(graph);
  PlacementPlan plan = searchContiguous(units, machine, placementCuts);
  if (plan.devices.empty() && options.contiguous)
    placementDoesNotFit(machine,
                        leastContiguousBytes(units, machine, placementCuts));
  Partition result;
  if (!options.contiguous) {
    PlacementUnits any = placementUnits(graph, false);
    PlacementPlan found = freePlacement(graph, units, any, machine, plan);
    if (plan.devices.empty() || found.load <= plan.load) {
      plan = std::move(found);
      units = std::move(any);
    }
  }
  verifyPlacement(graph, units, machine, plan, options.contiguous);
  result.objectiveName = "placement";
  result.unit = "ms";
  result.objective = plan.load;
  result.bound = placementBound(units, machine);
  result.exact = plan.exact;
  result.states = plan.states;
  int accelerator = 0, cpu = machine.accelerators;
  size_t slowest = 0;
  for (const auto &device : plan.devices) {
    PartitionStage stage;
    std::vector<int> members;
    for (int u : device.units)
      members.insert(members.end(), units.members[u].begin(),
                     units.members[u].end());
    std::sort(members.begin(), members.end());
    for (int v : members)
      stage.nodes.push_back(graph.nodes[static_cast<size_t>(v)].id);
    stage.kind = device.cpu ? "cpu" : "gpu";
    stage.devices = {device.cpu ? cpu++ : accelerator++};
    stage.load = device.load;
    if (device.load > plan.devices[slowest].load)
      slowest = result.stages.size();
    result.stages.push_back(std::move(stage));
  }
  double compute = 0;
  for (int u : plan.devices[slowest].units)
    compute +=
        plan.devices[slowest].cpu ? units.cpuLatency[u] : units.latency[u];
  result.binding = "device " +
                   std::to_string(result.stages[slowest].devices[0]) + ": " +
                   short4(compute) + " compute, " +
                   short4(plan.load - compute) + " transfers";
  for (const PlacementNode &node : graph.nodes)
    result.nodes.push_back({node.id, node.name});
  for (const auto &edge : graph.edges)
    result.edges.push_back({graph.nodes[static_cast<size_t>(edge.from)].id,
                            graph.nodes[static_cast<size_t>(edge.to)].id});
  return result;
}

//===----------------------------------------------------------------------===//
// Piper
//===----------------------------------------------------------------------===//

Partition partitionPiper(const PartitionOptions &options) {
  PiperGraph graph = parsePiperGraph(options.text, options.path);
  if (!options.devices.empty())
    graph.devices = static_cast<int>(devicesOf(options));
  if (options.microbatches > 0)
    graph.microbatches = options.microbatches;
  if (options.memoryLimit > 0)
    graph.memory = options.memoryLimit;
  if (!options.bandwidths.empty())
    graph.bandwidth = options.bandwidths.front();
  if (graph.devices > 1'000'000)
    throw Failure(
        Exit::Usage,
        "Piper's objective is searched for at most a million devices");
  constexpr size_t cuts = 300;
  PiperPlan plan = searchPiper(graph, cuts);
  if (plan.stages.empty()) {
    double enough = std::ceil(leastPiperMemory(graph, cuts));
    if (!(enough < 1e17))
      throw Failure(Exit::NoFit, "nothing fits: some node has no variant for " +
                                     std::to_string(graph.devices) +
                                     " devices or fewer; give more --devices");
    throw Failure(
        Exit::NoFit,
        "nothing fits in " +
            plan::formatBytes(static_cast<int64_t>(graph.memory)) +
            " a device: " +
            plan::formatBytes(static_cast<int64_t>(enough - graph.memory)) +
            " are missing; it would fit with --memory-limit " +
            std::to_string(static_cast<int64_t>(enough)));
  }
  verifyPiper(graph, plan);
  Partition result;
  result.objectiveName = "piper";
  result.unit = "s";
  result.objective = plan.seconds;
  double alone = piperDataParallel(graph);
  if (std::isfinite(alone))
    result.dataParallel = alone;
  result.bound = plan.bound;
  result.exact = plan.complete;
  result.states = plan.states;
  int device = 0;
  size_t slowest = 0;
  for (const PiperPlanStage &from : plan.stages) {
    PartitionStage stage;
    for (size_t i = 0; i < from.nodes.size(); ++i) {
      const PiperNode &node = graph.nodes[static_cast<size_t>(from.nodes[i])];
      stage.nodes.push_back(node.id);
      const auto &variants = node.variants.at(from.degree);
      const PiperVariant &chosen =
          variants[static_cast<size_t>(from.variants[i])];
      bool slimmer = std::any_of(
          variants.begin(), variants.end(),
          [&](const PiperVariant &v) { return v.seconds < chosen.seconds; });
      if (slimmer)
        stage.recomputed.push_back(node.id);
    }
    stage.replicas = from.replicas;
    stage.tensorParallel = from.degree;
    for (int d = 0; d < from.replicas * from.degree; ++d)
      stage.devices.push_back(device++);
    stage.load = from.seconds;
    if (from.seconds > plan.stages[slowest].seconds)
      slowest = result.stages.size();
    result.stages.push_back(std::move(stage));
  }
  result.binding = "stage " + std::to_string(slowest);
  for (const PiperNode &node : graph.nodes)
    result.nodes.push_back({node.id, node.name});
  for (int v = 0; v < graph.dag.size(); ++v)
    for (int w : graph.dag.out[v])
      result.edges.push_back({graph.nodes[static_cast<size_t>(v)].id,
                              graph.nodes[static_cast<size_t>(w)].id});
  return result;
}

} // namespace

std::string formatName(GraphFormat format) {
  return format == GraphFormat::PipeDream   ? "pipedream"
         : format == GraphFormat::Placement ? "placement"
                                            : "piper";
}

int64_t devicesOf(const PartitionOptions &options) {
  return std::accumulate(options.devices.begin(), options.devices.end(),
                         int64_t{options.devices.empty() ? 0 : 1},
                         std::multiplies<>());
}

std::vector<double> bandwidthsOf(const PartitionOptions &options,
                                 size_t levels) {
  const std::vector<double> &given = options.bandwidths;
  if (given.empty() || given.size() == levels)
    return given;
  if (given.size() == 1)
    return std::vector<double>(levels, given[0]);
  if (levels == 1 && given.size() == 2)
    return {given[1]};
  std::string devices = "of one level of devices";
  for (size_t l = 0; l < options.devices.size(); ++l)
    devices = (l ? devices + "x" : "of the levels of --devices ") +
              std::to_string(options.devices[l]);
  throw Failure(Exit::Usage, "--bandwidth has " + std::to_string(given.size()) +
                                 " values; give one for each " + devices +
                                 ", outermost first, or one for all");
}

GraphFormat guessFormat(const std::string &text, const std::string &path) {
  size_t mark = text.rfind("\xef\xbb\xbf", 0) == 0 ? 3 : 0; // of byte order
  size_t first = text.find_first_not_of(" \t\r\n", mark);
  if (first == std::string::npos)
    throw Failure(Exit::BadModel, path + " is empty");
  if (text[first] != '{' && text[first] != '[')
    return GraphFormat::PipeDream;
  for (const char *name : {"\"TMPCs\"", "\"maxDevices\"", "\"mbsInBatch\""})
    if (text.find(name) != std::string::npos)
      return GraphFormat::Piper;
  return GraphFormat::Placement;
}

/// Options that the objective has no place for are mistakes.
static void expectUsed(const PartitionOptions &options, Objective objective) {
  auto expect = [](bool holds, const std::string &message) {
    if (!holds)
      throw Failure(Exit::Usage, message);
  };
  const bool step = objective == Objective::Step;
  expect(options.contiguous || objective == Objective::Placement,
         "--shape free: only the placement objective has other than contiguous "
         "stages");
  expect(!options.straddle || objective == Objective::PipeDream,
         "--straddle on: only the pipedream objective keeps replicas within "
         "servers otherwise");
  expect(options.strategy.empty() || step,
         "--strategy: only --objective step prices one");
  expect(options.microbatches == 0 || step || objective == Objective::Piper,
         "--microbatches: the pipedream and placement objectives are times of "
         "one in a full pipeline, whatever their number: leave it out, or "
         "take --objective step");
  expect(options.bandwidths.empty() || objective != Objective::Placement,
         "--bandwidth: placement graphs say what each transfer takes");
  expect(options.bandwidths.size() <= 1 || objective != Objective::Piper,
         "--bandwidth: the piper objective has one bandwidth for all links");
}

Partition partitionGraph(const PartitionOptions &options) {
  const Phase phase("partition");
  const double began = now();
  double processorBegan = processorSeconds();
  GraphFormat format = options.format ? *options.format
                                      : guessFormat(options.text, options.path);
  Objective own = format == GraphFormat::PipeDream   ? Objective::PipeDream
                  : format == GraphFormat::Placement ? Objective::Placement
                                                     : Objective::Piper;
  Objective objective = options.objective.value_or(own);
  if (objective == own || objective == Objective::Step)
    expectUsed(options, objective);
  Partition result;
  if (objective == Objective::Step)
    result = partitionByStep(options, format);
  else if (objective != own)
    throw Failure(Exit::Usage, "a " + formatName(format) +
                                   " graph has the objectives " +
                                   formatName(format) + " and step");
  else if (format == GraphFormat::PipeDream)
    result = partitionPipeDream(options);
  else if (format == GraphFormat::Placement)
    result = partitionPlacement(options);
  else
    result = partitionPiper(options);
  result.seconds = processorSeconds() - processorBegan;
  result.wallSeconds = now() - began;
  return result;
}

} // namespace pipec::published
