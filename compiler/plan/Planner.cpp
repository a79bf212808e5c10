#include "compiler/plan/Planner.h"

#include "compiler/plan/Baselines.h"
#include "compiler/plan/Candidates.h"
#include "compiler/plan/ChooseRecompute.h"
#include "compiler/plan/Infeasible.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/PlanVerifier.h"
#include "compiler/plan/SharedWeights.h"
#include "compiler/plan/planners/Planners.h"
#include "support/Clock.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pipec::plan {

int64_t memoryLimitOf(const PlanRequest &request) {
  if (request.memoryLimit < 0)
    return std::numeric_limits<int64_t>::max();
  if (request.memoryLimit > 0)
    return request.memoryLimit;
  return request.topology.device.memoryBytes > 0
             ? request.topology.device.memoryBytes
             : std::numeric_limits<int64_t>::max();
}

namespace {

[[noreturn]] void usage(const std::string &message) {
  throw Failure(Exit::Usage, message);
}

void checkRequest(const PlanRequest &request) {
  checkCostGraph(request.graph);
  const StrategyFacts &facts = request.strategy;
  int devices = request.topology.devices();
  if (devices < 1)
    usage("a cluster needs at least one device");
  if (request.microbatches < 1 || request.microbatchSize < 1)
    usage("microbatches and their size must be at least 1");
  if (!facts.inFlight || !facts.versions)
    usage("strategy '" + facts.name + "' does not say what it keeps");
  int columns = std::max(1, facts.chunks);
  if (request.stages && *request.stages < 1)
    usage("--stages must be at least 1");
  if (!request.replicas.empty()) {
    for (int r : request.replicas)
      if (r < 1)
        usage("a stage needs at least one replica");
    if (request.stages &&
        *request.stages != static_cast<int>(request.replicas.size()))
      usage("replicas are given for " +
            std::to_string(request.replicas.size()) + " stages, but " +
            std::to_string(*request.stages) + " stages are asked for");
    int sum =
        std::accumulate(request.replicas.begin(), request.replicas.end(), 0);
    if (sum / columns > devices)
      usage("the replicas need " + std::to_string(sum / columns) +
            " devices; the cluster has " + std::to_string(devices) +
            ": give smaller --replicas, or more devices");
    const bool equal =
        std::ranges::adjacent_find(request.replicas, std::not_equal_to<>()) ==
        request.replicas.end();
    if (request.replicas.front() > 1 || !equal) {
      if (!facts.replicates && !facts.takesCopies())
        usage("strategy '" + facts.name +
              "' does not replicate stages: give 1 for each with --replicas, "
              "or another --strategy");
      if (!facts.replicates && !equal)
        usage("strategy '" + facts.name +
              "' replicates whole pipelines: give the same number for each "
              "stage with --replicas, or another --strategy");
    }
  }
  for (size_t c = 0; c < request.cuts.size(); ++c)
    if (request.cuts[c] >= request.graph.nodes.size() ||
        (c == 0 ? request.cuts[c] != 0
                : request.cuts[c] <= request.cuts[c - 1]))
      usage("stages must start at ascending nodes, the first at node 0");
  if (!facts.order && request.cuts.size() % static_cast<size_t>(columns) != 0)
    usage("strategy '" + facts.name + "' puts " + std::to_string(columns) +
          " stages on each device; the split has " +
          std::to_string(request.cuts.size()) +
          ", which is not a multiple; take another --strategy or another "
          "split");
}

/// The plan of a hand-written split, checked against the limit.
Split handWritten(const PlanRequest &request, const StepModel &model) {
  Split split;
  split.starts = request.cuts;
  split.replicas = request.replicas.empty()
                       ? std::vector<int>(request.cuts.size(), 1)
                       : request.replicas;
  if (split.replicas.size() != split.starts.size())
    usage("the split has " + std::to_string(split.starts.size()) +
          " stages, but replicas for " + std::to_string(split.replicas.size()));
  int sum = std::accumulate(split.replicas.begin(), split.replicas.end(), 0);
  if (sum / std::max(1, request.strategy.chunks) > request.topology.devices())
    usage("the split needs " + std::to_string(sum) +
          " devices; the cluster has " +
          std::to_string(request.topology.devices()) +
          ": give a split for as many, or more devices");
  if (auto why = unequalCopies(request, split.starts, split.replicas))
    usage(*why);
  split.recompute = chooseRecompute(model, split);
  // Nobody says where the copies are: inside servers if that is faster.
  Split inside = split;
  inside.pipelinesInside = split.replicas.front() > 1;
  if (inside.pipelinesInside &&
      std::ranges::adjacent_find(split.replicas, std::not_equal_to<>()) ==
          split.replicas.end() &&
      model.stepSeconds(inside) < model.stepSeconds(split))
    return inside;
  return split;
}

/// Throws where no cut lets stages of the replicas asked for train: the even
/// one stands for all.
void refuseReplicas(const PlanRequest &request) {
  const std::vector<size_t> starts =
      evenStarts(request.graph, request.replicas.size());
  if (starts.size() == request.replicas.size())
    if (auto why = unequalCopies(request, starts, request.replicas))
      usage(*why);
}

/// Bytes on the fullest device of the smallest split, computing again as it
/// says or, where that is the planner's to choose, everything; 0 without any.
int64_t leastBytes(const PlanRequest &request, const StepModel &model,
                   const std::vector<Split> &splits) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Split &split : splits) {
    least = std::min(least, model.peakOf(split));
    Split again = split;
    again.recompute.assign(split.starts.size(), true);
    if (request.recompute == Recompute::Auto)
      least = std::min(least, model.peakOf(again));
  }
  return splits.empty() ? 0 : least;
}

/// The fastest of a planner's proposals that fits; nothing when none does,
/// `proposed` what the smallest takes, and a usage error where some do, but
/// cannot be trained.
Split bestProposal(const PlanRequest &request, const StepModel &model,
                   std::string &runnerUp, int64_t &proposed) {
  // One stage leaves a planner nothing to choose.
  const bool cuts = request.strategy.shape != Shape::DataParallel;
  const std::vector<int> &groups = request.tensorParallel;
  if (!cuts && std::find(groups.begin(), groups.end(), 1) == groups.end())
    usage("strategy '" + request.strategy.name +
          "' copies the model to every device, which divides no operators; use "
          "strategy 1f1b, or leave out the number of --tensor-parallel");
  std::optional<Phase> phase;
  if (request.planner != "auto")
    phase.emplace(request.planner);
  Proposal proposal =
      planner(cuts ? request.planner : "auto").propose(request, model);
  runnerUp = proposal.runnerUp;
  Split chosen;
  double best = std::numeric_limits<double>::infinity();
  for (const Split &split : proposal.splits) {
    double seconds = model.stepSeconds(split);
    if (seconds < best) {
      best = seconds;
      chosen = split;
    }
  }
  if (chosen.starts.empty() && proposal.splits.empty())
    refuseReplicas(request);
  for (const Split &split : proposal.splits)
    if (auto why = unequalCopies(request, split.starts, split.replicas);
        why && chosen.starts.empty())
      usage(*why);
  if (chosen.starts.empty() && request.planner != "auto")
    proposed = leastBytes(request, model, proposal.splits);
  return chosen;
}

} // namespace

PlanResult evaluatePlan(const PlanRequest &request,
                        const std::vector<size_t> &firstNodes,
                        const std::vector<int> &replicas,
                        const std::vector<bool> &recompute) {
  PlanRequest copy = request;
  copy.cuts = firstNodes;
  copy.replicas = replicas;
  checkRequest(copy);
  IntervalCosts costs(request.graph);
  StepModel model(request, costs);
  Split split;
  split.starts = firstNodes;
  split.replicas =
      replicas.empty() ? std::vector<int>(firstNodes.size(), 1) : replicas;
  split.recompute = recompute;
  return model.price(split);
}

PlanResult makePlan(const PlanRequest &request) {
  const double began = now();
  checkRequest(request);
  IntervalCosts costs(request.graph);
  StepModel model(request, costs);
  Split chosen;
  std::string runnerUp;
  if (!request.cuts.empty()) {
    chosen = handWritten(request, model);
    if (peakBytes(model.price(chosen).stages) > model.limit())
      throwNoFit(request, model, chosen);
  } else {
    std::vector<size_t> starts = legalStarts(request.graph);
    checkStageCount(request, starts.size());
    int64_t proposed = 0;
    chosen = bestProposal(request, model, runnerUp, proposed);
    if (chosen.starts.empty())
      chosen = smallestOrNoFit(request, proposed);
  }
  PlanResult result = model.price(chosen);
  result.runnerUp = runnerUp;
  result.limitBinds = model.limitBinds() || request.planner != "auto";
  result.simulations = model.simulations();
  if (request.baselines)
    result.baselines = priceBaselines(request, result);
  verifyPlan(request, result);
  result.searchSeconds = now() - began;
  return result;
}

std::string replicasText(const std::vector<int> &replicas) {
  std::string text;
  for (int r : replicas)
    text += (text.empty() ? "" : "-") + std::to_string(r);
  return text;
}

std::string shortReplicas(const std::vector<int> &replicas) {
  constexpr size_t kFew = 20, kMost = 60; // stages, characters
  if (replicas.size() <= kFew && replicasText(replicas).size() <= kMost)
    return replicasText(replicas);
  std::string text;
  for (size_t first = 0, next = 0; first < replicas.size(); first = next) {
    while (next < replicas.size() && replicas[next] == replicas[first])
      ++next;
    const std::string run =
        std::to_string(next - first) + " x " + std::to_string(replicas[first]);
    if (text.size() + run.size() > kMost)
      return text + ", …";
    text += (text.empty() ? "" : ", ") + run;
  }
  return text;
}

} // namespace pipec::plan
