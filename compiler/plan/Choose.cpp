#include "compiler/plan/Choose.h"

#include "support/Failure.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace pipec::plan {

StrategyChoice chooseStrategy(const PlanRequest &request,
                              const std::vector<StrategyFacts> &strategies) {
  if (strategies.empty())
    throw Failure(Exit::Usage, "no strategy to choose from");
  StrategyChoice choice;
  std::optional<Failure> refusal;
  double best = std::numeric_limits<double>::infinity(), second = best;
  std::string secondText;
  auto describe = [](const std::string &name, const PlanResult &result) {
    char text[160];
    std::snprintf(text, sizeof text, "%.60s, %zu stages: %.4g ms a step",
                  name.c_str(), result.stages.size(), result.stepSeconds * 1e3);
    return std::string(text);
  };
  for (size_t i = 0; i < strategies.size(); ++i) {
    PlanRequest asked = request;
    asked.strategy = strategies[i];
    choice.stepSeconds.push_back(std::nan(""));
    PlanResult result;
    try {
      result = makePlan(asked);
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
        throw;
      if (!refusal)
        refusal.emplace(failure);
      continue;
    }
    // Steps of strategies without a barrier are microbatches: compare those.
    double seconds = result.stepSeconds / asked.microbatches;
    choice.stepSeconds.back() = result.stepSeconds;
    if (seconds < best) {
      if (std::isfinite(best)) {
        second = best;
        secondText = describe(strategies[choice.strategy].name, choice.result);
      }
      best = seconds;
      choice.strategy = i;
      choice.result = std::move(result);
    } else if (seconds < second) {
      second = seconds;
      secondText = describe(strategies[i].name, result);
    }
  }
  if (!std::isfinite(best))
    throw *refusal;
  if (std::isfinite(second)) {
    char text[48];
    std::snprintf(text, sizeof text, ", %+.1f %%", 100 * (second / best - 1));
    choice.result.runnerUp = secondText + text;
  }
  return choice;
}

} // namespace pipec::plan
