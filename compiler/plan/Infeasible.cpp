#include "compiler/plan/Infeasible.h"

#include "compiler/plan/SmallestSplit.h"
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
  const std::optional<SmallestSplit> least = smallestSplit(request, replicas);
  return least ? least->bytes : std::numeric_limits<int64_t>::max();
}

/// The fewest stages of one device each that fit, beyond the cluster; 0 if
/// none.
int stagesThatFit(const PlanRequest &request, int64_t limit) {
  PlanRequest larger = request;
  larger.replication = false;
  int places = static_cast<int>(legalStarts(request.graph).size());
  int chunks = std::max(1, request.strategy.chunks);
  // What such a strategy keeps is read off its order, one for each number of
  // devices: of millions of actions that takes seconds.
  constexpr int64_t kMostActions = 1'000'000;
  const int64_t each =
      request.strategy.replicates ? 0 : int64_t(3) * request.microbatches;
  for (int k = request.topology.devices() + 1;
       k * chunks <= places && each * k * chunks <= kMostActions;
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

/// What the device with the most weights has of them at least.
int64_t leastWeights(const PlanRequest &request) {
  int64_t bytes = 0;
  for (const CostNode &node : request.graph.nodes)
    bytes += node.parameterBytes;
  for (const CostWeight &weight : request.graph.weights)
    bytes += weight.bytes;
  return bytes / request.topology.devices();
}

/// A limit under which a plan of groups is found, within a 32nd of the least of
/// its kind; 0 if there is none up to 256 times what there is, or the weights.
/// Parts of powers of two, so that the same one is named whatever there is.
int64_t limitForGroups(const PlanRequest &request, int64_t limit) {
  constexpr int64_t kMost = int64_t(1) << 50; // bytes that nobody has
  int64_t high = 1;
  while (high <= std::min(std::max(limit, leastWeights(request)), kMost))
    high *= 2;
  for (int doubled = 0; doubled < 9; ++doubled, high *= 2) {
    if (!fitsIn(request, high))
      continue;
    for (int64_t step = high / 4; step >= std::max<int64_t>(1, high / 64);
         step /= 2)
      if (high - step > limit && fitsIn(request, high - step))
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

/// A limit under which a named planner finds a plan, which may need more than
/// the smallest there is; 0 if none of a few above `least` is enough.
int64_t limitForPlanner(const PlanRequest &request, int64_t least) {
  for (const int64_t more : {int64_t(0), least / 16, least / 4, least})
    if (least + more > memoryLimitOf(request) && fitsIn(request, least + more))
      return least + more;
  return 0;
}

/// What a planner finds, not what there is: it may refuse what would fit in
/// `needed`. The smallest that it proposes takes `proposed`, 0: it has nothing.
[[noreturn]] void throwNotFound(const PlanRequest &request, int64_t needed,
                                int64_t proposed) {
  const int64_t limit = memoryLimitOf(request);
  std::vector<Remedy> remedies;
  if (request.namesLimitAlone && proposed > limit)
    remedies.push_back({Remedy::Limit, proposed});
  else if (const int64_t enough =
               limitForPlanner(request, proposed > 0 ? proposed : needed))
    remedies.push_back({Remedy::Limit, enough});
  if (needed <= limit)
    remedies.push_back({Remedy::Flags, 0, "--planner auto"});
  if (proposed > limit)
    throw NoFit("nothing fits in memory: what planner " + request.planner +
                    " finds needs at least " + formatBytes(proposed) +
                    " on a device, " + formatBytes(proposed - limit) +
                    " more than the " + formatBytes(limit) + " there are",
                remedies,
                remedies.empty() ? "give more devices, or --planner auto" : "",
                limit);
  throw NoFit("nothing fits in memory: planner " + request.planner +
                  " finds no plan that keeps to the " + formatBytes(limit) +
                  " there are on a device",
              remedies,
              remedies.empty() ? "give more devices, or --planner auto" : "",
              limit);
}

/// `needed` bytes are the least that a plan takes.
[[noreturn]] void throwNeeds(const PlanRequest &request, int64_t needed,
                             const std::vector<int> &replicas) {
  const int64_t limit = memoryLimitOf(request);
  const std::string message =
      "nothing fits in memory: the smallest plan needs at least " +
      formatBytes(needed) + " on a device, " + formatBytes(needed - limit) +
      " more than the " + formatBytes(limit) + " there are";
  std::vector<Remedy> remedies = {{Remedy::Limit, needed}};
  if (request.namesLimitAlone)
    throw NoFit(message, remedies, "", limit);
  if (request.recompute == Recompute::None && request.cuts.empty()) {
    PlanRequest again = request;
    again.recompute = Recompute::Full;
    if (neededBytes(again, replicas) <= limit)
      remedies.push_back({Remedy::Recompute});
  }
  if (request.cuts.empty() && request.replicas.empty() &&
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

void checkExplains(const PlanRequest &request) {
  if (!request.explainNoFit)
    throw Failure(Exit::NoFit, "nothing fits in memory");
}

} // namespace

void throwNoFit(const PlanRequest &request, const StepModel &model,
                const Split &split) {
  checkExplains(request);
  throwNeeds(request, model.peakOf(split), split.replicas);
}

Split smallestOrNoFit(const PlanRequest &request, int64_t proposed) {
  checkExplains(request);
  const int64_t limit = memoryLimitOf(request);
  if (request.tensorParallel != std::vector{1})
    throwNoGroups(request, limit);
  std::optional<SmallestSplit> least = smallestSplit(request, {});
  if (!least)
    throw Failure(Exit::Usage,
                  "strategy '" + request.strategy.name +
                      "' has no stages of this model for " +
                      std::to_string(request.topology.devices()) +
                      " devices: give other --stages or another --strategy");
  packTogether(request, *least);
  const bool isNamed = request.planner != "auto" &&
                       request.strategy.shape != Shape::DataParallel;
  if (isNamed &&
      (proposed > 0 || least->bytes <= limit || !request.namesLimitAlone))
    throwNotFound(request, least->bytes, proposed);
  if (least->bytes > limit)
    throwNeeds(request, least->bytes, {});
  return std::move(least->split);
}

} // namespace pipec::plan
