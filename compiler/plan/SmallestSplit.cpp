#include "compiler/plan/SmallestSplit.h"

#include "compiler/plan/Candidates.h"
#include "compiler/plan/ChainSearch.h"
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

std::optional<SmallestSplit> smallestSplit(const PlanRequest &request,
                                           const std::vector<int> &replicas) {
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
    // Stages that share a device are packed apart and taken together.
    if (!found || bytes < found->bytes)
      found = SmallestSplit{std::move(*split), bytes};
  }
  return found;
}

} // namespace pipec::plan
