#include "compiler/plan/MarkovSearch.h"

#include "compiler/plan/ChooseRecompute.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::plan {

MarkovSearch::MarkovSearch(const PlanRequest &request, const StepModel &model)
    : bestSeconds(std::numeric_limits<double>::infinity()), request(request),
      model(model), places(legalStarts(request.graph)),
      shapes(request.replication && request.strategy.replicates &&
             request.strategy.chunks == 1 && request.strategy.copies == 1 &&
             !request.stages && request.replicas.empty()) {}

bool MarkovSearch::moveBorder(Split &split) {
  if (split.starts.size() < 2)
    return false;
  size_t s = 1 + below(split.starts.size() - 1);
  size_t low = split.starts[s - 1] + 1;
  size_t high =
      s + 1 < split.starts.size() ? split.starts[s + 1] - 1 : places.back();
  auto first = std::lower_bound(places.begin(), places.end(), low);
  auto last = std::upper_bound(places.begin(), places.end(), high);
  if (first == last)
    return false;
  // Mostly a short run of operators.
  auto at = std::lower_bound(first, last, split.starts[s]);
  long step = 1 + static_cast<long>(
                      below(1 + places.size() / (8 * split.starts.size())));
  long here = at - first, count = last - first;
  long to =
      std::clamp<long>(below(2) ? here + step : here - step, 0, count - 1);
  split.starts[s] = first[to];
  return true;
}

/// A stage splits, and its replicas with it.
bool MarkovSearch::splitStage(Split &split) {
  size_t s = below(split.starts.size());
  size_t end = s + 1 < split.starts.size() ? split.starts[s + 1]
                                           : request.graph.nodes.size();
  auto first = std::upper_bound(places.begin(), places.end(), split.starts[s]);
  auto last = std::lower_bound(places.begin(), places.end(), end);
  if (first == last || split.replicas[s] < 2)
    return false;
  size_t cut =
      first[static_cast<long>(below(static_cast<size_t>(last - first)))];
  int taken =
      1 + static_cast<int>(below(static_cast<size_t>(split.replicas[s] - 1)));
  split.replicas[s] -= taken;
  split.starts.insert(split.starts.begin() + static_cast<long>(s) + 1, cut);
  split.replicas.insert(split.replicas.begin() + static_cast<long>(s) + 1,
                        taken);
  return true;
}

bool MarkovSearch::propose(Split &split) {
  size_t stages = split.starts.size();
  switch (shapes ? below(4) : 0) {
  case 0:
    return moveBorder(split);
  case 1: { // a replica changes stages
    size_t from = below(stages), to = below(stages);
    if (from == to || split.replicas[from] < 2)
      return false;
    --split.replicas[from];
    ++split.replicas[to];
    break;
  }
  case 2:
    if (!splitStage(split))
      return false;
    break;
  default: { // two stages join
    if (stages < 2)
      return false;
    size_t s = 1 + below(stages - 1);
    split.replicas[s - 1] += split.replicas[s];
    split.starts.erase(split.starts.begin() + static_cast<long>(s));
    split.replicas.erase(split.replicas.begin() + static_cast<long>(s));
  }
  }
  // Devices go stage by stage again; a placement belonged to the old shape.
  split.devices.clear();
  split.pipelinesInside = false;
  return !request.strategy.synchronous ||
         *std::max_element(split.replicas.begin(), split.replicas.end()) <=
             request.microbatches;
}

void MarkovSearch::walk(Split from, long proposals, double warmth) {
  from.recompute = chooseRecompute(model, from);
  double seconds = model.stepSeconds(from);
  double scale = std::isfinite(seconds) ? seconds : 1;
  if (seconds < bestSeconds || best.starts.empty()) {
    best = from;
    bestSeconds = seconds;
  }
  for (long i = 0; i < proposals; ++i) {
    Split next = from;
    if (!propose(next))
      continue;
    next.recompute = chooseRecompute(model, next);
    double found = model.stepSeconds(next);
    // A plan that does not fit is left for any that does, never entered.
    if (!std::isfinite(found) && std::isfinite(seconds))
      continue;
    bool better = found <= seconds || !std::isfinite(seconds);
    if (!better && unit() >= std::exp((seconds - found) / (warmth * scale)))
      continue;
    from = std::move(next);
    seconds = found;
    if (seconds < bestSeconds) {
      best = from;
      bestSeconds = seconds;
    }
  }
}

} // namespace pipec::plan
