//===- PipeDream.cpp - PipeDream's optimizer on a model -------------------===//
//
// The published cost model (published/PipeDreamSearch.h) over the chain's cuts:
// compute, parameter-server-style gradient exchange and exact cut bytes, level
// by level of the cluster. It knows no memory, no fill and no drain.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/planners/Planners.h"
#include "compiler/plan/published/PipeDreamSearch.h"
#include "support/Failure.h"

#include <algorithm>

namespace pipec::plan {

namespace {

/// The chain's prefixes as cut states.
published::CutStates chainStates(const PlanRequest &request,
                                 const Layers &layers) {
  published::CutStates states;
  size_t n = layers.count();
  std::vector<double> crossing(request.graph.nodes.size() + 1, 0);
  for (const CostValue &value : request.graph.values) {
    if (value.consumers.empty())
      continue;
    size_t last =
        *std::max_element(value.consumers.begin(), value.consumers.end());
    crossing[value.producer + 1] += static_cast<double>(value.bytes);
    crossing[last + 1] -= static_cast<double>(value.bytes);
  }
  for (size_t i = 1; i < crossing.size(); ++i)
    crossing[i] += crossing[i - 1];
  double seconds = 0, weights = 0;
  for (size_t s = 0; s <= n; ++s) {
    states.seconds.push_back(seconds);
    states.weights.push_back(weights);
    states.kept.push_back(weights); // no memory limit here
    states.cut.push_back(s == 0 || s == n ? 0 : crossing[layers.starts[s]]);
    if (s < n) {
      seconds += layers.costs[s].seconds();
      weights += static_cast<double>(layers.costs[s].parameterBytes);
    }
  }
  states.above = published::Supersets(n + 1);
  for (size_t s = 0; s <= n; ++s)
    for (size_t t = s + 1; t <= n; ++t)
      states.above.add(s, t);
  states.complete = true;
  return states;
}

} // namespace

Proposal proposePipeDream(const PlanRequest &request, const StepModel &model) {
  expectFreeShape(request, "pipedream");
  std::vector<published::PipeDreamLevel> given;
  for (const Level &level : request.topology.levels)
    given.push_back({level.count, level.bandwidth});
  const std::vector<published::PipeDreamLevel> levels =
      published::levelsOf(given);
  if (request.topology.devices() > 1024)
    throw Failure(Exit::Usage, "planner pipedream takes at most 1024 devices; "
                               "use planner auto");
  // Of more levels the inner ones are solved from every cut to every other.
  constexpr size_t many = 1000, fewer = 250;
  const Layers layers =
      layersOf(request, model, levels.size() > 2 ? fewer : many);
  published::PipeDreamPlan plan =
      published::searchPipeDream(chainStates(request, layers), levels);
  Split split;
  for (const published::PipeDreamStage &stage : plan.stages) {
    split.starts.push_back(layers.starts[stage.before]);
    split.replicas.push_back(stage.replicas);
    split.devices.push_back(stage.devices);
  }
  split.recompute = chooseRecompute(model, split);
  return {{split}, ""};
}

} // namespace pipec::plan
