#include "compiler/plan/SmallestSplit.h"

#include "compiler/plan/Candidates.h"
#include "compiler/plan/ChainSearch.h"
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/Refine.h"
#include "compiler/plan/SharedWeights.h"

#include <algorithm>

namespace pipec::plan {
namespace {

/// Places to cut, which allow every one of the shapes.
std::vector<size_t> placesOf(const PlanRequest &request,
                             const std::vector<Shape2D> &shapes) {
  constexpr size_t kPlaces = 512;
  size_t most = 0;
  for (const Shape2D &shape : shapes)
    most = std::max(most, shape.replicas.size());
  return coarseStarts(request.graph, legalStarts(request.graph),
                      std::max(kPlaces, 2 * most), placesFor(most));
}

} // namespace

static std::optional<SmallestSplit>
smallestPacked(const PlanRequest &request, const std::vector<int> &replicas) {
  const IntervalCosts costs(request.graph);
  const StepModel model(request, costs);
  std::vector<Shape2D> shapes;
  if (!replicas.empty())
    shapes.push_back({replicas, false});
  else
    shapes = candidateShapes(request, model);
  const ChainSearch search(model, placesOf(request, shapes));
  int64_t least = ChainSearch::kMostBytes;
  std::optional<SmallestSplit> found;
  for (const Shape2D &shape : shapes) {
    const int64_t limit = search.smallestLimit(shape.replicas, least);
    if (limit >= least)
      continue;
    std::optional<Split> split = search.packed(shape.replicas, limit);
    if (!split || unequalCopies(request, split->starts, split->replicas))
      continue;
    least = limit;
    const int64_t bytes = model.peakOf(*split);
    if (!found || bytes < found->bytes)
      found = SmallestSplit{std::move(*split), bytes};
  }
  return found;
}

std::optional<SmallestSplit> smallestSplit(const PlanRequest &request,
                                           const std::vector<int> &replicas) {
  std::optional<SmallestSplit> least = smallestPacked(request, replicas);
  if (request.recompute != Recompute::Auto)
    return least;
  // Packing is greedy: with less to choose it may come to less.
  for (const Recompute same : {Recompute::None, Recompute::Full}) {
    PlanRequest alike = request;
    alike.recompute = same;
    std::optional<SmallestSplit> other = smallestPacked(alike, replicas);
    if (other && (!least || other->bytes < least->bytes))
      least = std::move(other);
  }
  return least;
}

void packTogether(PlanRequest request, SmallestSplit &least) {
  if (request.strategy.chunks * request.strategy.copies == 1)
    return;
  request.memoryLimit = 1; // all computes again that takes less for it
  request.effort = 1;      // one and the same split
  const IntervalCosts costs(request.graph);
  const StepModel model(request, costs);
  least.split.recompute = chooseRecompute(model, least.split);
  least.bytes = refinePeak(model, legalStarts(request.graph), least.split);
}

} // namespace pipec::plan
