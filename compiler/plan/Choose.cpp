#include "compiler/plan/Choose.h"

#include "compiler/plan/Baselines.h"
#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace pipec::plan {

namespace {

/// Steps of strategies without a barrier are microbatches: compare those.
double perMicrobatch(const PlanRequest &request, double stepSeconds) {
  return stepSeconds / request.microbatches;
}

int64_t largestStage(const PlanResult &result) {
  int64_t most = 0;
  for (const StagePlan &stage : result.stages)
    most = std::max(most, stage.memory.total());
  return most;
}

struct Candidate {
  size_t index;
  double seconds; ///< a microbatch
  PlanResult result;
};

/// Times that differ by rounding alone are equal.
bool better(const Candidate &a, const Candidate &b) {
  if (std::abs(a.seconds - b.seconds) > 1e-9 * b.seconds)
    return a.seconds < b.seconds;
  return largestStage(a.result) < largestStage(b.result);
}

std::string describe(const std::string &name, const Candidate &candidate,
                     double best) {
  char text[200];
  std::snprintf(text, sizeof text,
                "%.60s, %zu stage%s: %.4g ms a step, %+.1f %%", name.c_str(),
                candidate.result.stages.size(),
                candidate.result.stages.size() == 1 ? "" : "s",
                candidate.result.stepSeconds * 1e3,
                best > 0 ? 100 * (candidate.seconds / best - 1) : 0.0);
  return text;
}

} // namespace

StrategyChoice chooseStrategy(const std::vector<PlanRequest> &requests) {
  if (requests.empty())
    throw Failure(Exit::Usage, "no strategy to choose from");
  StrategyChoice choice;
  std::optional<Failure> refusal;
  std::optional<Candidate> best, second;
  for (size_t i = 0; i < requests.size(); ++i) {
    PlanRequest asked = requests[i];
    asked.baselines = false;
    asked.effort /= static_cast<double>(std::min<size_t>(requests.size(), 8));
    choice.stepSeconds.push_back(std::nan(""));
    try {
      PlanResult result = makePlan(asked);
      choice.stepSeconds.back() = result.stepSeconds;
      Candidate made{i, perMicrobatch(asked, result.stepSeconds),
                     std::move(result)};
      if (!best || better(made, *best))
        second = std::move(best), best = std::move(made);
      else if (!second || better(made, *second))
        second = std::move(made);
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
        throw;
      if (!refusal)
        refusal.emplace(failure);
    }
  }
  if (!best)
    throw *refusal;
  choice.chosen = best->index;
  choice.result = std::move(best->result);
  const PlanRequest &chosen = requests[best->index];
  if (chosen.baselines)
    choice.result.baselines = priceBaselines(chosen, choice.result);
  if (second)
    choice.result.runnerUp =
        describe(requests[second->index].strategy.name, *second, best->seconds);
  return choice;
}

} // namespace pipec::plan
