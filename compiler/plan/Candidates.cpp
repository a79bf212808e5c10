#include "compiler/plan/Candidates.h"

#include "compiler/plan/ReplicaSearch.h"
#include "compiler/plan/SharedWeights.h"
#include "compiler/schedule/Schedule.h"
#include "support/Failure.h"

#include <algorithm>
#include <limits>

namespace pipec::plan {

namespace {

void addShape(std::vector<Shape2D> &shapes, Shape2D shape) {
  if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end())
    shapes.push_back(std::move(shape));
}

/// A grid in both placements, where they differ.
void addGrid(std::vector<Shape2D> &shapes, const PlanRequest &request,
             int stages, int replicas) {
  addShape(shapes, {std::vector<int>(stages, replicas), false});
  bool oneServer =
      request.topology.levels.size() == 1 ||
      request.topology.devices() == request.topology.levels.back().count;
  if (stages > 1 && replicas > 1 && !oneServer)
    addShape(shapes, {std::vector<int>(stages, replicas), true});
}

/// Whether the schedule has an order of so many stages and copies: some need
/// more microbatches than these have each.
bool hasOrder(const PlanRequest &request, int stages, int copies) try {
  request.strategy.inFlight(
      {0, stages, copies, stages * copies, request.microbatches});
  return true;
} catch (const Failure &failure) {
  if (failure.code != Exit::Usage)
    throw;
  return false;
}

/// As many copies of whole pipelines as there are orders for, and no shapes
/// without; where there are none at all, one copy, whose refusal is in the
/// numbers that were asked for.
void keepOrdered(const PlanRequest &request, std::vector<Shape2D> &shapes) {
  const auto refused = [&](const Shape2D &shape) {
    return !hasOrder(request, static_cast<int>(shape.replicas.size()),
                     shape.replicas.front());
  };
  for (Shape2D &shape : shapes)
    while (shape.replicas.front() > 1 && refused(shape))
      for (int &copies : shape.replicas)
        --copies;
  if (!std::ranges::all_of(shapes, refused))
    std::erase_if(shapes, refused);
}

bool hasOrders(const PlanRequest &request, const std::vector<Shape2D> &shapes) {
  return std::ranges::any_of(shapes, [&](const Shape2D &shape) {
    return hasOrder(request, static_cast<int>(shape.replicas.size()),
                    shape.replicas.front());
  });
}

/// Where there are orders neither of deep pipelines nor of as many as all
/// devices make: fewer of the shallowest, the others idle.
std::vector<Shape2D> shallowest(const PlanRequest &request,
                                const std::vector<Shape2D> &all) {
  if (all.empty())
    return all;
  Shape2D shape = *std::ranges::min_element(
      all, {}, [](const Shape2D &s) { return s.replicas.size(); });
  for (int &copies : shape.replicas)
    copies = std::min(copies, request.microbatches);
  shape.pipelinesInside = false;
  std::vector<Shape2D> shapes = {shape};
  keepOrdered(request, shapes);
  return shapes;
}

/// The deepest of pipelines that could be as many instead are not searched for:
/// what fills them takes longer than what they do.
void leaveOutDeep(const PlanRequest &request, std::vector<Shape2D> &shapes) {
  constexpr int64_t kMostTasks = 1 << 17;
  if (!request.strategy.searches || request.stages || shapes.empty())
    return;
  const auto tasks = [&](const Shape2D &s) {
    return 3 * std::ssize(s.replicas) * request.microbatches /
           s.replicas.front();
  };
  const int64_t least = tasks(*std::ranges::min_element(shapes, {}, tasks));
  std::erase_if(shapes, [&](const Shape2D &s) {
    return tasks(s) > std::max(least, kMostTasks);
  });
}

/// Depths worth trying on that many columns: all small ones, and of the large
/// ones those that use every device or are round.
std::vector<int> depths(int most, int devices) {
  std::vector<int> result;
  for (int k = 1; k <= most; ++k)
    if (k <= 16 || devices % k == 0 || k == most || (k <= 128 && k % 8 == 0))
      result.push_back(k);
  return result;
}

} // namespace

std::vector<int> partsOf(const Topology &topology) {
  std::vector<int> counts;
  int component = 1;
  for (size_t l = topology.levels.size(); l-- > 0;) {
    const int count = topology.levels[l].count;
    for (int several = 1; several < count; several *= 2)
      counts.push_back(several * component);
    component *= count;
  }
  return counts;
}

std::vector<Shape2D> candidateShapes(const PlanRequest &request,
                                     const StepModel &model) {
  const StrategyFacts &facts = request.strategy;
  std::vector<Shape2D> shapes;
  int devices = request.topology.devices();
  int chunks = std::max(1, facts.chunks);
  if (!request.replicas.empty()) {
    const std::vector<int> &given = request.replicas;
    if (std::ranges::adjacent_find(given, std::not_equal_to<>()) == given.end())
      addGrid(shapes, request, static_cast<int>(given.size()), given.front());
    else
      addShape(shapes, {given, false});
    return shapes;
  }
  if (facts.shape == Shape::DataParallel) {
    addShape(shapes, {{devices}, false});
    return shapes;
  }
  int starts = static_cast<int>(std::min<size_t>(
      legalStarts(request.graph).size(), std::numeric_limits<int>::max()));
  const bool replicate = request.replication && facts.takesCopies(),
             pipelines = replicate && !facts.replicates; // whole ones alone
  if (request.stages) {
    int columns = *request.stages / chunks;
    addGrid(shapes, request, *request.stages,
            replicate ? std::max(1, devices / columns) : 1);
  } else {
    int most = std::min(devices, starts / chunks);
    if (most == 0) // fewer nodes than stages of one device
      return shapes;
    std::vector<int> tried = request.useAllDevices && !replicate
                                 ? std::vector<int>{most}
                                 : depths(most, devices);
    const auto isTried = [&](int k) {
      // One device is no pipeline to repeat.
      if (pipelines)
        return k == most || (k > 1 && devices % k == 0);
      return !request.useAllDevices || !replicate || devices % k == 0;
    };
    for (int k : tried)
      if (isTried(k))
        addGrid(shapes, request, k * chunks, replicate ? devices / k : 1);
  }
  const bool unequal = replicate && !pipelines &&
                       (facts.synchronous || !sharesWeights(request.graph)),
             isFree = replicate && !pipelines && !request.stages &&
                      !request.useAllDevices;
  if (devices > 1 && unequal)
    for (Shape2D &shape : unequalShapes(request, model))
      addShape(shapes, std::move(shape));
  // What a search by bounds drops, which see no order and no limit: as many
  // replicas at both ends of a model, where its embedding and its head are.
  constexpr int kFewDevices = 16;
  if (unequal && devices <= kFewDevices && starts >= 3 &&
      request.stages.value_or(3) == 3)
    for (int ends = 1; 2 * ends < devices; ++ends)
      addShape(shapes, {{ends, devices - 2 * ends, ends}, false});
  // A replica without a microbatch is an idle device.
  const std::vector<Shape2D> all = shapes;
  if (facts.synchronous && shapes.size() > 1)
    std::erase_if(shapes, [&](const Shape2D &s) {
      return *std::max_element(s.replicas.begin(), s.replicas.end()) >
             request.microbatches;
    });
  if (pipelines) {
    leaveOutDeep(request, shapes);
    keepOrdered(request, shapes);
    if (!hasOrders(request, shapes))
      shapes = shallowest(request, all);
  }
  // Whoever need not use all devices may leave those without a microbatch idle,
  // and all behind links that cost more than they bring.
  if (isFree)
    for (int count : partsOf(request.topology))
      for (int k = 1; k <= std::min(count, starts); ++k)
        if (count % k == 0 && count / k <= request.microbatches)
          addGrid(shapes, request, k, count / k);
  if (shapes.empty() || (isFree && request.microbatches < devices))
    addGrid(shapes, request, chunks, std::min(devices, request.microbatches));
  return shapes;
}

void checkStageCount(const PlanRequest &request, size_t starts) {
  const StrategyFacts &facts = request.strategy;
  int chunks = std::max(1, facts.chunks);
  size_t wanted = !request.replicas.empty() ? request.replicas.size()
                  : request.stages ? static_cast<size_t>(*request.stages)
                                   : 0;
  if (facts.shape == Shape::DataParallel && wanted > 1)
    throw Failure(Exit::Usage,
                  "strategy '" + facts.name + "' has one stage, not " +
                      std::to_string(wanted) + "; leave --stages out");
  if (wanted > starts)
    throw Failure(Exit::Usage, "the model can be cut into at most " +
                                   std::to_string(starts) + " stages, not " +
                                   std::to_string(wanted) + ": give fewer");
  if (facts.order) {
    // Its placement need not be regular.
    if (wanted != static_cast<size_t>(facts.order->stages))
      throw Failure(Exit::Usage, facts.name + " has " +
                                     std::to_string(facts.order->stages) +
                                     " stages, not " + std::to_string(wanted));
    return;
  }
  if (wanted % chunks != 0)
    throw Failure(Exit::Usage,
                  "strategy '" + facts.name + "' puts " +
                      std::to_string(chunks) + " stages on each device; " +
                      std::to_string(wanted) +
                      " is not a multiple: give --stages " +
                      std::to_string((wanted / chunks + 1) * chunks));
  if (request.replicas.empty() && request.stages &&
      *request.stages / chunks > request.topology.devices())
    throw Failure(Exit::Usage, std::to_string(*request.stages) +
                                   " stages need " +
                                   std::to_string(*request.stages / chunks) +
                                   " devices; the cluster has " +
                                   std::to_string(request.topology.devices()) +
                                   ": give fewer --stages, or more devices");
}

namespace {

/// Bytes that cross the cut before each node.
std::vector<double> crossingBytes(const CostGraph &graph) {
  std::vector<double> crossing(graph.nodes.size() + 1, 0);
  for (const CostValue &value : graph.values) {
    if (value.consumers.empty())
      continue;
    size_t last =
        *std::max_element(value.consumers.begin(), value.consumers.end());
    double bytes = static_cast<double>(value.bytes) +
                   static_cast<double>(value.gradientBytes);
    crossing[value.producer + 1] += bytes;
    crossing[last + 1] -= bytes;
  }
  double sum = 0;
  for (double &bytes : crossing)
    bytes = sum += bytes;
  return crossing;
}

/// Work before each node. A share of it for every node (in parts of an even
/// one) keeps long runs of free nodes from falling into one bucket.
std::vector<double> workBefore(const CostGraph &graph, double share) {
  const size_t n = graph.nodes.size();
  double total = 0;
  for (const CostNode &node : graph.nodes)
    total += node.forwardSeconds + node.backwardInputSeconds +
             node.backwardWeightSeconds;
  const double grain = total > 0 ? share * total / static_cast<double>(n) : 1.0;
  std::vector<double> before(n + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    const CostNode &node = graph.nodes[i];
    before[i + 1] = before[i] + grain + node.forwardSeconds +
                    node.backwardInputSeconds + node.backwardWeightSeconds;
  }
  return before;
}

/// The cheapest cut in each of `want` shares of the work.
std::vector<size_t> cheapestCuts(const std::vector<size_t> &starts, size_t want,
                                 const std::vector<double> &crossing,
                                 const std::vector<double> &before) {
  std::vector<size_t> result{0};
  size_t bucket = 0, best = 0;
  bool open = false;
  for (size_t s = 1; s < starts.size(); ++s) {
    size_t mine = static_cast<size_t>(before[starts[s]] / before.back() *
                                      static_cast<double>(want - 1));
    if (open && mine != bucket) {
      result.push_back(best);
      open = false;
    }
    if (!open || crossing[starts[s]] < crossing[best]) {
      best = starts[s];
      bucket = mine;
      open = true;
    }
  }
  if (open)
    result.push_back(best);
  return result;
}

} // namespace

std::vector<size_t> coarseStarts(const CostGraph &graph,
                                 const std::vector<size_t> &starts, size_t want,
                                 size_t fewest) {
  if (starts.size() <= want)
    return starts;
  const std::vector<double> crossing = crossingBytes(graph);
  // Few nodes may have most of the work: then most shares have no cut at all.
  constexpr double kLeastShare = 0.1, kMostShare = 1000;
  std::vector<size_t> result;
  for (double share = kLeastShare; share <= kMostShare; share *= 4) {
    result = cheapestCuts(starts, want, crossing, workBefore(graph, share));
    if (result.size() >= fewest)
      return result;
  }
  return result.size() >= fewest ? result : starts;
}

size_t mostStarts(const PlanRequest &request) {
  // Exact up to a few thousand places; beyond that the judge's refinement moves
  // cuts between the coarse ones.
  size_t wanted = request.stages ? static_cast<size_t>(*request.stages) : 1;
  double most = request.stages || !request.replicas.empty() ? 4096 : 768;
  auto places = static_cast<size_t>(std::max(256.0, most * request.effort));
  return std::max(places, 2 * wanted);
}

} // namespace pipec::plan
