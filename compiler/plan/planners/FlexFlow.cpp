//===- FlexFlow.cpp - Markov-chain search under the simulator -------------===//
//
// Metropolis-Hastings over per-operator choices (MarkovSearch.h) from an even
// split and from data parallelism, the task graph simulated for every proposal.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/MarkovSearch.h"
#include "compiler/plan/planners/Planners.h"

#include <algorithm>

namespace pipec::plan {

Proposal proposeFlexFlow(const PlanRequest &request, const StepModel &model) {
  Split even = proposeEven(request, model).splits.front();
  bool free = request.replication && request.strategy.replicates &&
              request.strategy.chunks == 1 && !request.stages &&
              request.replicas.empty();
  // A budget of simulated actions, so that the answer does not depend on speed.
  MarkovSearch search(request, model);
  int64_t each = model.effort(even.replicas) + 2000;
  const auto budget = static_cast<int64_t>(6e7 * request.effort);
  long proposals =
      static_cast<long>(std::clamp<int64_t>(budget / each, 200, 20'000));
  search.walk(even, proposals / 2, 0.02);
  if (free) { // data parallelism is the other natural start
    int width = request.topology.devices();
    if (request.strategy.synchronous)
      width = std::min(width, request.microbatches);
    search.walk({{0}, {width}, {}, false, {}}, proposals / 2, 0.02);
  }
  return {{search.best}, ""};
}

} // namespace pipec::plan
