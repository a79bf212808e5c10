#include "compiler/plan/Baselines.h"

#include "compiler/plan/Candidates.h"
#include "compiler/plan/ChainSearch.h"
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/Infeasible.h"
#include "compiler/plan/PeakBytes.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <limits>

namespace pipec::plan {

std::vector<size_t> evenStarts(const CostGraph &graph, size_t count) {
  std::vector<size_t> legal = legalStarts(graph), starts;
  count = std::min(count, legal.size());
  for (size_t s = 0; s < count; ++s) {
    size_t ideal = s * graph.nodes.size() / count;
    // The nearest legal start that leaves one for every other stage.
    size_t at = static_cast<size_t>(
        std::lower_bound(legal.begin(), legal.end(), ideal) - legal.begin());
    at = std::clamp(at, s, legal.size() - (count - s));
    if (!starts.empty() && legal[at] <= starts.back())
      at = static_cast<size_t>(
          std::upper_bound(legal.begin(), legal.end(), starts.back()) -
          legal.begin());
    starts.push_back(legal[at]);
  }
  return starts;
}

namespace {

/// Why it does not fit, which the table says before it. An estimate: it may be
/// below the limit that built plans have to keep to.
std::string needs(int64_t bytes) {
  return "needs about " + formatBytes(bytes) + " on a device";
}

/// One alternative priced; `perStep` microbatches stand for one step of ours.
Baseline price(const PlanRequest &asked, const std::string &name,
               const StrategyFacts &facts, int microbatches, Split split,
               const std::string &note) {
  PlanRequest request = asked;
  request.strategy = facts;
  request.microbatches = microbatches;
  if (asked.trueLimit > 0)
    request.memoryLimit = asked.trueLimit;
  Baseline baseline;
  baseline.name = name;
  baseline.note = note;
  try {
    IntervalCosts costs(request.graph);
    StepModel model(request, costs);
    if (split.starts.empty()) {
      const size_t stages = split.replicas.size();
      ChainSearch search(model,
                         coarseStarts(request.graph, legalStarts(request.graph),
                                      std::max<size_t>(512, 2 * stages),
                                      placesFor(stages)));
      auto best = search.best(split.replicas, false,
                              std::numeric_limits<double>::infinity(),
                              search.labelsFor(split.replicas.size()));
      if (!best) {
        baseline.peakBytes = search.smallestLimit(split.replicas);
        baseline.note = needs(baseline.peakBytes);
        return baseline;
      }
      split = *best;
    }
    split.recompute = chooseRecompute(model, split);
    PlanResult result = model.price(split);
    baseline.peakBytes = peakBytes(result.stages);
    baseline.fits = baseline.peakBytes <= model.limit();
    baseline.stepSeconds =
        result.stepSeconds * asked.microbatches / microbatches;
    if (!baseline.fits)
      baseline.note = needs(baseline.peakBytes);
  } catch (const Failure &failure) {
    baseline.note = failure.what();
  }
  return baseline;
}

} // namespace

std::vector<Baseline> priceBaselines(const PlanRequest &request,
                                     const PlanResult &chosen) {
  const Phase pricing("comparing with others");
  std::vector<Baseline> all;
  bool synchronous = request.strategy.synchronous;
  int used = 0;
  for (const StagePlan &s : chosen.stages)
    used =
        std::max(used, *std::max_element(s.devices.begin(), s.devices.end()) +
                           s.sharding.degree);
  int stages = static_cast<int>(chosen.stages.size());
  std::string per = synchronous ? "" : "per microbatch";

  int share = synchronous ? request.microbatches : used;
  int replicas = std::min(used, share);
  std::string parallel = per;
  if (replicas < used)
    parallel = "only " + std::to_string(replicas) + " of " +
               std::to_string(used) + " devices have work";
  else if (used < request.topology.devices())
    parallel = "on as many devices as the plan, " + std::to_string(used) +
               " of " + std::to_string(request.topology.devices()) +
               (per.empty() ? "" : ", " + per);
  all.push_back(price(request, "data parallel", strategyFacts("dp"), share,
                      {{0}, {replicas}, {}, false}, parallel));

  Split even;
  even.starts = evenStarts(request.graph, static_cast<size_t>(stages));
  for (const StagePlan &s : chosen.stages)
    even.replicas.push_back(s.replicas * s.sharding.degree);
  even.replicas.resize(even.starts.size());
  all.push_back(price(request, "even split", request.strategy,
                      request.microbatches, even,
                      stages == 1 ? "of one stage, as the plan" : ""));

  // Beside one stage, a pipeline over the plan's devices.
  const int places = static_cast<int>(legalStarts(request.graph).size());
  const int depth = std::min(stages > 1 ? stages : used, places);
  int pipelines = synchronous ? request.microbatches : 4 * depth;
  std::vector<int> plain(static_cast<size_t>(depth), 1);
  if (stages == 1 && depth > 1)
    per = std::to_string(depth) + " stages, a device each" +
          (per.empty() ? "" : ", " + per);
  if (stages > 1) {
    int columns = stages / std::max(1, request.strategy.chunks);
    int each = std::max(1, std::min(used / columns, pipelines));
    plain.assign(static_cast<size_t>(columns), each);
  }
  // A gpipe plan is what gpipe gives, cut more carefully than a row would be.
  if (stages > 1 && request.strategy.name == "gpipe")
    all.push_back({"gpipe", true, chosen.stepSeconds, peakBytes(chosen.stages),
                   "this plan"});
  else
    all.push_back(price(request, "gpipe", strategyFacts("gpipe"), pipelines,
                        {{}, plain, {}, false}, per));
  all.push_back(price(request, "one device", strategyFacts("dp"),
                      request.microbatches, {{0}, {1}, {}, false}, ""));
  return all;
}

} // namespace pipec::plan
