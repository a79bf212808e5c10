#include "compiler/plan/Infeasible.h"

#include "compiler/plan/Candidates.h"
#include "compiler/plan/ChainSearch.h"
#include "compiler/plan/PeakBytes.h"
#include "support/Failure.h"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace pipec::plan {

std::string formatBytes(int64_t bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units))
    value /= 1024, ++unit;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.4g %s", value,
                units[unit]);
  return text;
}

std::string Remedy::text() const {
  switch (kind) {
  case Limit:
    return "--memory-limit " + std::to_string(amount);
  case Recompute:
    return "--recompute auto";
  case Devices:
    return std::to_string(amount) + " devices";
  case Strategy:
    return "--strategy 1f1b";
  case Flags:
    return flags;
  }
  return "";
}

static std::string withRemedies(std::string message,
                                const std::vector<Remedy> &remedies) {
  for (size_t i = 0; i < remedies.size(); ++i)
    message +=
        (i == 0 ? "; it would fit with " : ", or with ") + remedies[i].text();
  return message;
}

NoFit::NoFit(const std::string &shortage, const std::vector<Remedy> &remedies,
             const std::string &hint, int64_t limit)
    : Failure(Exit::NoFit, withRemedies(shortage, remedies) +
                               (hint.empty() ? "" : "; " + hint)),
      shortage(shortage), remedies(remedies), hint(hint), limit(limit) {}

namespace {

/// The smallest limit under which some allowed shape fits.
int64_t neededBytes(const PlanRequest &request,
                    const std::vector<int> &replicas) {
  IntervalCosts costs(request.graph);
  StepModel model(request, costs);
  std::vector<size_t> starts = legalStarts(request.graph);
  ChainSearch search(model, coarseStarts(request.graph, starts, 512));
  const int64_t chunks = std::max(1, request.strategy.chunks);
  int64_t least = ChainSearch::kMostBytes;
  std::vector<std::vector<int>> shapes;
  if (!replicas.empty())
    shapes.push_back(replicas);
  else
    for (const Shape2D &shape : candidateShapes(request, model))
      shapes.push_back(shape.replicas);
  for (const auto &shape : shapes)
    least = search.smallestLimit(shape, least);
  return least * chunks;
}

/// The fewest stages of one device each that fit, beyond the cluster; 0 if
/// none.
int stagesThatFit(const PlanRequest &request, int64_t limit) {
  PlanRequest larger = request;
  larger.replication = false;
  int places = static_cast<int>(legalStarts(request.graph).size());
  int chunks = std::max(1, request.strategy.chunks);
  for (int k = request.topology.devices() + 1; k * chunks <= places;
       k += std::max(1, k / 4)) {
    larger.topology.levels = {{"device", k, 1e9, 0}};
    const std::vector<int> straight(static_cast<size_t>(k * chunks), 1);
    try {
      if (neededBytes(larger, straight) <= limit)
        return k;
    } catch (const Failure &failure) { // stages that it cannot have
      if (failure.code != Exit::Usage)
        throw;
    }
  }
  return 0;
}

bool fitsIn(PlanRequest request, int64_t limit) {
  request.memoryLimit = limit;
  request.explainNoFit = request.baselines = false;
  try {
    makePlan(request);
    return true;
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit)
      throw;
    return false;
  }
}

/// A limit under which a plan of groups is found, within a sixteenth of the
/// least of its kind; 0 if there is none up to 256 times what there is.
int64_t limitForGroups(const PlanRequest &request, int64_t limit) {
  int64_t low = limit, high = limit;
  for (int doubled = 0; doubled < 8; ++doubled) {
    high *= 2;
    if (!fitsIn(request, high)) {
      low = high;
      continue;
    }
    for (int64_t step = (high - low) / 2; step >= high / 16; step /= 2)
      if (fitsIn(request, high - step))
        high -= step;
    return high;
  }
  return 0;
}

/// What groups of devices need is known of plans alone.
[[noreturn]] void throwNoGroups(const PlanRequest &request, int64_t limit) {
  const std::vector<int> &sizes = request.tensorParallel;
  const int server = request.topology.levels.back().count;
  if (std::none_of(sizes.begin(), sizes.end(),
                   [&](int size) { return server % size == 0; }))
    throw Failure(Exit::Usage,
                  "a server's " + std::to_string(server) +
                      (server == 1 ? " device forms" : " devices form") +
                      " no groups of " + std::to_string(sizes.front()));
  constexpr int kMostTried = 64; // devices, each plan in well under a second
  std::vector<Remedy> remedies;
  PlanRequest again = request;
  again.recompute = Recompute::Full;
  if (request.topology.devices() <= kMostTried) {
    if (request.recompute == Recompute::None && fitsIn(again, limit))
      remedies.push_back({Remedy::Recompute});
    else if (int64_t needed = limitForGroups(request, limit))
      remedies.push_back({Remedy::Limit, needed});
  }
  throw NoFit("nothing fits in memory: no plan of groups of devices is found "
              "that keeps to the " +
                  formatBytes(limit) + " there are on a device",
              remedies,
              !remedies.empty() ? ""
              : sizes.size() > 1
                  ? "give more devices or a larger --memory-limit"
                  : "give more devices, a larger --memory-limit, or "
                    "--tensor-parallel auto",
              limit);
}

} // namespace

void throwNoFit(const PlanRequest &request, const StepModel &model,
                const std::vector<int> &replicas) {
  int64_t limit = model.limit();
  if (!request.explainNoFit)
    throw Failure(Exit::NoFit, "nothing fits in memory");
  if (request.tensorParallel != std::vector{1})
    throwNoGroups(request, limit);
  int64_t needed;
  if (!request.cuts.empty()) {
    Split split;
    split.starts = request.cuts;
    split.replicas = replicas;
    needed = peakBytes(model.price(split).stages);
  } else {
    needed = neededBytes(request, replicas);
  }
  std::string message =
      "nothing fits in memory: the smallest plan needs at least " +
      formatBytes(needed) + " on a device, " +
      (needed > limit ? formatBytes(needed - limit) + " more than the " +
                            formatBytes(limit) + " there are"
                      : "which this planner does not find");
  std::vector<Remedy> remedies = {{Remedy::Limit, needed}};
  if (request.namesLimitAlone)
    throw NoFit(message, remedies, "", limit);
  if (request.recompute == Recompute::None && request.cuts.empty()) {
    PlanRequest again = request;
    again.recompute = Recompute::Full;
    if (neededBytes(again, replicas) <= limit)
      remedies.push_back({Remedy::Recompute});
  }
  if (request.cuts.empty() && replicas.empty() && request.replicas.empty() &&
      !request.strategy.order && request.strategy.shape != Shape::DataParallel)
    if (int k = stagesThatFit(request, limit))
      remedies.push_back({Remedy::Devices, k});
  if (request.strategy.shape == Shape::DataParallel) {
    PlanRequest again = request;
    again.strategy = strategyFacts("1f1b");
    if (neededBytes(again, {}) <= limit)
      remedies.push_back({Remedy::Strategy});
  }
  throw NoFit(message, remedies, "", limit);
}

} // namespace pipec::plan
