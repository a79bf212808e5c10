#include "compiler/plan/SharedWeights.h"

#include <algorithm>

namespace pipec::plan {

static size_t stageOf(size_t node, std::span<const size_t> starts) {
  return static_cast<size_t>(
             std::upper_bound(starts.begin(), starts.end(), node) -
             starts.begin()) -
         1;
}

std::optional<std::string> unequalCopies(const PlanRequest &request,
                                         std::span<const size_t> starts,
                                         std::span<const int> replicas) {
  if (request.strategy.synchronous || starts.empty())
    return std::nullopt;
  for (const CostWeight &weight : request.graph.weights) {
    if (!weight.trainable || weight.users.empty())
      continue;
    const size_t first = stageOf(weight.users.front(), starts);
    for (size_t user : weight.users)
      if (size_t other = stageOf(user, starts);
          replicas[other] != replicas[first])
        return "strategy '" + request.strategy.name + "' updates stage " +
               std::to_string(first) + " after " +
               std::to_string(replicas[first]) + " microbatches and stage " +
               std::to_string(other) + " after " +
               std::to_string(replicas[other]) +
               ", but both hold the weight '" + weight.name +
               "': give them equally many replicas";
  }
  return std::nullopt;
}

bool sharesWeights(const CostGraph &graph) {
  return std::any_of(graph.weights.begin(), graph.weights.end(),
                     [](const CostWeight &weight) {
                       return weight.trainable && weight.users.size() > 1;
                     });
}

} // namespace pipec::plan
