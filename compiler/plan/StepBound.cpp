#include "compiler/plan/StepBound.h"

#include "support/Failure.h"

#include <algorithm>
#include <cmath>

namespace pipec::plan {

namespace {

/// The parts that no cut divides, with the seconds of a microbatch's way there
/// (forward) and in all.
struct Atoms {
  std::vector<double> seconds;
  double total = 0, forward = 0, input = 0, largest = 0;
};

Atoms atomsOf(const PlanRequest &request) {
  Atoms atoms;
  const bool again = request.recompute == Recompute::Full;
  std::vector<size_t> starts = legalStarts(request.graph);
  starts.push_back(request.graph.nodes.size());
  for (size_t a = 0; a + 1 < starts.size(); ++a) {
    double seconds = 0;
    for (size_t i = starts[a]; i < starts[a + 1]; ++i) {
      const CostNode &node = request.graph.nodes[i];
      atoms.forward += node.forwardSeconds;
      atoms.input +=
          node.backwardInputSeconds + (again ? node.forwardSeconds : 0);
      seconds += node.forwardSeconds * (again ? 2 : 1) +
                 node.backwardInputSeconds + node.backwardWeightSeconds;
    }
    atoms.seconds.push_back(seconds);
    atoms.total += seconds;
    atoms.largest = std::max(atoms.largest, seconds);
  }
  return atoms;
}

/// Whether so many consecutive groups hold all atoms within `most` each.
bool packs(const Atoms &atoms, int groups, double most) {
  double held = 0;
  int used = 1;
  for (double seconds : atoms.seconds) {
    if (held + seconds > most && held > 0) {
      held = 0;
      if (++used > groups)
        return false;
    }
    held += seconds;
  }
  return true;
}

/// At most the largest group of the most even cut into so many.
double evenest(const Atoms &atoms, int groups) {
  double low = std::max(atoms.largest, atoms.total / groups),
         high = atoms.total;
  while (high - low > 1e-6 * high) {
    const double middle = 0.5 * (low + high);
    (packs(atoms, groups, middle) ? high : low) = middle;
  }
  return low;
}

int stagesOf(const PlanRequest &request) {
  if (!request.replicas.empty())
    return static_cast<int>(request.replicas.size());
  return request.stages.value_or(request.topology.devices());
}

/// Of a pipeline in two directions: a stage starts no microbatch before one of
/// those that it has in flight has been through all stages and back, and each
/// copy of it has its share of them.
double windowBound(const PlanRequest &request, double passage) try {
  const StrategyFacts &facts = request.strategy;
  const int stages = stagesOf(request);
  const int window = facts.inFlight(
      {0, stages, 1, request.topology.devices(), request.microbatches});
  return std::floor(request.microbatches / facts.copies / window) * passage;
} catch (const Failure &failure) { // no order for so few microbatches
  if (failure.code != Exit::Usage)
    throw;
  return 0;
}

bool straight(const PlanRequest &request) {
  const StrategyFacts &facts = request.strategy;
  if (facts.order) // which may copy stages
    return false;
  if (!request.replicas.empty())
    return std::all_of(request.replicas.begin(), request.replicas.end(),
                       [](int r) { return r == 1; });
  return !request.replication || !facts.takesCopies();
}

} // namespace

double stepBound(const PlanRequest &request) {
  const StrategyFacts &facts = request.strategy;
  const Topology &topology = request.topology;
  const Atoms atoms = atomsOf(request);
  const double microbatches = request.microbatches;
  const int devices = topology.devices();
  double computing = devices;
  if (topology.cores > 0)
    computing = std::min(computing, static_cast<double>(topology.cores) *
                                        std::ceil(static_cast<double>(devices) /
                                                  topology.serverSize()));
  double bound = microbatches * atoms.total / computing;
  const bool dataParallel = facts.shape == Shape::DataParallel;
  if (straight(request) && !dataParallel) {
    // Of two copies of a pipeline each takes every other microbatch.
    bound = std::max(bound,
                     std::floor(microbatches / facts.copies) * atoms.largest);
    if (facts.copies > 1 && facts.synchronous)
      bound =
          std::max(bound, windowBound(request, facts.splitBackward
                                                   ? atoms.forward + atoms.input
                                                   : atoms.total));
    if (facts.chunks == 1 && facts.copies == 1) {
      const int stages = stagesOf(request);
      bound = std::max(bound, microbatches * evenest(atoms, stages));
      // A stage's first forward follows the forwards before it, its last
      // backward precedes theirs: T >= before + M * own for every stage, so
      // that what is left of T shrinks by 1/M a stage at most.
      if (facts.synchronous && facts.barrier && !facts.splitBackward)
        bound = std::max(
            bound, atoms.total / (1 - std::pow(1 - 1 / microbatches, stages)));
    }
  }
  if (facts.synchronous && facts.barrier)
    bound = std::max(bound, facts.splitBackward ? atoms.forward + atoms.input
                                                : atoms.total);
  return bound * (1 - 1e-9);
}

} // namespace pipec::plan
