//===- Auto.cpp - this project's own search -------------------------------===//
//
// Every shape of pipeline that the request allows is cut by the exact chain
// search under its surrogate; the best are judged by the simulator and refined.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Baselines.h"
#include "compiler/plan/BehindText.h"
#include "compiler/plan/Candidates.h"
#include "compiler/plan/ChainSearch.h"
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/MarkovSearch.h"
#include "compiler/plan/Refine.h"
#include "compiler/plan/StableOrder.h"
#include "compiler/plan/planners/Planners.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pipec::plan {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

struct Ranked {
  Split split;
  double surrogate;
};

/// Whether devices have several stages, small and large ones together, which
/// the judge alone adds up.
bool sharesDevices(const PlanRequest &request) {
  constexpr int kFewDevices = 32; // or one search takes as long as all others
  constexpr double kEarnest = 0.25;
  return request.strategy.chunks * request.strategy.copies > 1 &&
         (request.topology.devices() <= kFewDevices ||
          request.effort >= kEarnest);
}

/// What a stage may take then, in even shares of a device that does not hold
/// all splits.
constexpr double kMoreThanEven = 5.0 / 3;

/// Splits worth the simulator's time, best surrogate first.
std::vector<Ranked> rankedSplits(const PlanRequest &request,
                                 const StepModel &model, ChainSearch &search) {
  std::vector<Ranked> ranked;
  std::optional<Failure> refusal;
  std::vector<Shape2D> shapes = candidateShapes(request, model);
  // Many shapes are ranked by a few labels each; what is far behind is dropped.
  bool many = shapes.size() > 3;
  std::vector<double> least(shapes.size(), 0);
  if (many)
    for (size_t i = 0; i < shapes.size(); ++i)
      least[i] = search.leastSurrogate(shapes[i].replicas);
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), size_t(0));
  sortBy(order, [&](size_t i) { return least[i]; });
  double best = inf;
  Phase looking("shape", std::ssize(order));
  for (size_t i : order) {
    looking.next();
    const Shape2D &shape = shapes[i];
    if (least[i] > 1.25 * best)
      break;
    const auto rank = [&](double share) -> const Ranked * {
      search.setShare(share);
      auto split = many
                       ? search.best(shape.replicas, shape.pipelinesInside,
                                     1.25 * best, 3)
                       : search.best(shape.replicas, shape.pipelinesInside, inf,
                                     search.labelsFor(shape.replicas.size()));
      const auto isIt = [&](const Ranked &r) { return r.split == *split; };
      if (!split || std::ranges::any_of(ranked, isIt))
        return nullptr;
      return &ranked.emplace_back(*split, search.surrogate(*split));
    };
    // A schedule may not exist for every number of stages and microbatches.
    try {
      if (const Ranked *fits = rank(1))
        best = std::min(best, fits->surrogate);
      if (model.limitBinds() && sharesDevices(request))
        rank(kMoreThanEven);
    } catch (const Failure &failure) {
      if (failure.code != Exit::Usage)
        throw;
      if (!refusal)
        refusal.emplace(failure);
    }
  }
  if (ranked.empty() && refusal)
    throw *refusal;
  sortBy(ranked, [](const Ranked &r) { return r.surrogate; });
  return ranked;
}

std::string secondPlace(const Split &split, double seconds, double best) {
  const size_t stages = split.starts.size();
  return std::to_string(stages) +
         (stages == 1 ? " stage (replicas " : " stages (replicas ") +
         shortReplicas(split.replicas) +
         "): " + behindText(seconds, best, best > 0 ? seconds / best : 1);
}

struct Judged {
  Split split;
  double seconds;
};

/// The even split of that shape, where it exists and fits.
std::optional<Judged> evenSplit(const StepModel &model, const Split &shape) {
  Split even = shape;
  even.starts = evenStarts(model.request().graph, shape.starts.size());
  if (even.starts.size() != even.replicas.size())
    return std::nullopt;
  even.recompute = chooseRecompute(model, even);
  double seconds = model.stepSeconds(even);
  if (!std::isfinite(seconds))
    return std::nullopt;
  return Judged{even, seconds};
}

bool freeShape(const PlanRequest &request) {
  const StrategyFacts &facts = request.strategy;
  return request.replication && facts.replicates && facts.chunks == 1 &&
         facts.copies == 1 && facts.shape != Shape::DataParallel &&
         !request.stages && request.replicas.empty();
}

/// One stage on parts of the cluster, whatever the ranking thinks of what links
/// cost: quickly simulated.
void addSingleStages(const PlanRequest &request, const StepModel &model,
                     std::vector<Judged> &judged) {
  if (!freeShape(request) || request.useAllDevices)
    return;
  std::vector<int> counts = partsOf(request.topology);
  counts.push_back(request.topology.devices());
  for (int count : counts) {
    Split split{{0}, {std::min(count, request.microbatches)}, {}, false, {}};
    split.recompute = chooseRecompute(model, split);
    const double seconds = model.stepSeconds(split);
    if (std::isfinite(seconds))
      judged.push_back({split, seconds});
  }
}

/// Not where strategies are compared first, nor on a large cluster.
bool isInEarnest(const PlanRequest &request) {
  constexpr double worthwhile = 0.5;
  return request.topology.devices() <= 32 && request.effort >= worthwhile;
}

/// What the other planners would do, where they are quick: no plan is behind
/// theirs under the same effort.
void addPublished(const PlanRequest &request, const StepModel &model,
                  std::vector<Judged> &judged) {
  if (!freeShape(request) || !isInEarnest(request))
    return;
  for (const PlannerRow &row : planners())
    try {
      if (row.propose == proposeAuto)
        continue;
      const Phase one(row.name);
      for (const Split &split : row.propose(request, model).splits) {
        double seconds = model.stepSeconds(split);
        if (std::isfinite(seconds))
          judged.push_back({split, seconds});
      }
    } catch (const Failure &failure) { // a cluster that it does not know
      if (failure.code != Exit::Usage)
        throw;
    }
}

/// Unequal shapes have too many neighbours for a sweep: random walks from the
/// best few, borders polished afterwards.
void walk(const PlanRequest &request, const StepModel &model,
          const std::vector<size_t> &starts, std::vector<Judged> &judged) {
  if (!freeShape(request) || judged.empty())
    return;
  Phase walks("random walk", 3);
  MarkovSearch search(request, model);
  for (size_t i = 0; i < std::min<size_t>(judged.size(), 3); ++i) {
    walks.next();
    // Proposals have unequal replicas, and an order of their own each.
    const int64_t stages =
        static_cast<int64_t>(judged[i].split.replicas.size());
    int64_t each = std::max(model.effort(judged[i].split.replicas),
                            6 * stages * request.microbatches) +
                   2000;
    auto proposals = static_cast<long>(
        std::min(1e7 * request.effort / static_cast<double>(each), 4000.0));
    search.walk(judged[i].split, proposals, 0.01);
  }
  Judged found{search.best, search.bestSeconds};
  if (found.seconds >= judged[0].seconds)
    return;
  found.seconds = refine(model, starts, found.split);
  judged.insert(judged.begin(), found);
}

/// Judges the ranked splits by simulation and improves the best of them.
Split decide(const PlanRequest &request, const StepModel &model,
             const std::vector<size_t> &starts,
             const std::vector<Ranked> &ranked, std::string &runnerUp) {
  constexpr size_t judgedAtMost = 12, refinedAtMost = 3, repairedAtMost = 2;
  std::vector<Judged> judged;
  size_t repaired = 0;
  auto budget = static_cast<int64_t>(2e7 * request.effort);
  if (!ranked.empty())
    if (auto even = evenSplit(model, ranked.front().split))
      judged.push_back(*even);
  for (const Ranked &r : ranked) {
    if (judged.size() >= judgedAtMost)
      break;
    budget -= model.effort(r.split.replicas);
    if (budget < 0 && !judged.empty())
      break;
    Split split = r.split;
    split.recompute = chooseRecompute(model, split);
    double seconds = model.stepSeconds(split);
    const bool isGuess =
        sharesDevices(request) || request.recompute == Recompute::Auto;
    if (!std::isfinite(seconds) && isGuess &&
        model.peakOf(split) > model.limit() && ++repaired <= repairedAtMost) {
      refinePeak(model, starts, split, model.limit());
      seconds = model.stepSeconds(split);
    }
    if (std::isfinite(seconds))
      judged.push_back({std::move(split), seconds});
  }
  addSingleStages(request, model, judged);
  addPublished(request, model, judged);
  auto seconds = [](const Judged &j) { return j.seconds; };
  sortBy(judged, seconds);
  const size_t refined = std::min(judged.size(), refinedAtMost);
  Phase refining("refining cuts", static_cast<int64_t>(refined));
  for (size_t i = 0; i < refined; ++i) {
    refining.next();
    if (!exhaust(model, starts, judged[i].split, judged[i].seconds))
      judged[i].seconds = refine(model, starts, judged[i].split);
  }
  sortBy(judged, seconds);
  walk(request, model, starts, judged);
  if (judged.empty())
    return {};
  // Never slower than the even split of the same shape.
  if (auto even = evenSplit(model, judged[0].split);
      even && even->seconds < judged[0].seconds)
    judged.insert(judged.begin(), *even);
  for (size_t i = 1; i < judged.size(); ++i)
    if (judged[i].split.replicas != judged[0].split.replicas) {
      runnerUp =
          secondPlace(judged[i].split, judged[i].seconds, judged[0].seconds);
      break;
    }
  return judged[0].split;
}

} // namespace

Proposal proposeAuto(const PlanRequest &request, const StepModel &model) {
  std::vector<size_t> starts = legalStarts(request.graph);
  const auto stages = static_cast<size_t>(request.stages.value_or(1));
  ChainSearch search(model,
                     coarseStarts(request.graph, starts, mostStarts(request),
                                  placesFor(stages)));
  Proposal proposal;
  double best = inf;
  const auto add = [&](const PlanRequest &asked) {
    std::vector<Ranked> ranked = rankedSplits(asked, model, search);
    std::string runnerUp;
    Split chosen = decide(asked, model, starts, ranked, runnerUp);
    if (chosen.starts.empty())
      return;
    const double seconds = model.stepSeconds(chosen);
    if (proposal.splits.empty() || seconds < best) {
      proposal = {{std::move(chosen)}, runnerUp};
      best = seconds;
    }
  };
  add(request);
  // As who asks for the strategy by name, on GPUs.
  if (freeShape(request) && !request.useAllDevices && isInEarnest(request) &&
      request.topology.device.kind != "cpu") {
    PlanRequest all = request;
    all.useAllDevices = true;
    try {
      add(all);
    } catch (const Failure &failure) { // it has no such shape
      if (failure.code != Exit::Usage || proposal.splits.empty())
        throw;
    }
  }
  return proposal;
}

} // namespace pipec::plan
