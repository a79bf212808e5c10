#include "compiler/plan/Choose.h"

#include "compiler/plan/Baselines.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/StableOrder.h"
#include "compiler/plan/StepBound.h"
#include "report/Format.h"
#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace pipec::plan {

namespace {

/// Devices up to which the winner is searched for with all effort: on 1,024
/// GPT-3 takes as long for one strategy as for the comparison.
constexpr int kSmallCluster = 32;

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
  PlanRequest request;
  PlanResult result;
};

/// What a user sees of a plan: who has the same and takes as long is its twin
/// under another name.
struct Face {
  size_t index;
  double seconds; ///< a microbatch
  double stepSeconds;
  std::vector<size_t> starts;
  std::vector<int> replicas;
  std::vector<bool> recompute;
  bool isTwin(const Face &other) const {
    return starts == other.starts && replicas == other.replicas &&
           recompute == other.recompute &&
           std::abs(seconds - other.seconds) <= 1e-6 * seconds;
  }
};

Face faceOf(const Candidate &candidate) {
  Face face{candidate.index,
            candidate.seconds,
            candidate.result.stepSeconds,
            {},
            {},
            {}};
  for (const StagePlan &stage : candidate.result.stages) {
    face.starts.push_back(stage.firstNode);
    face.replicas.push_back(stage.replicas);
    face.recompute.push_back(stage.recompute);
  }
  return face;
}

/// The fastest of those that are no twin of `best`; none: the end.
std::vector<Face>::const_iterator runnerUpOf(const std::vector<Face> &all,
                                             const Face &best) {
  auto second = all.end();
  for (auto face = all.begin(); face != all.end(); ++face)
    if (face->index != best.index && !face->isTwin(best) &&
        (second == all.end() || face->seconds < second->seconds))
      second = face;
  return second;
}

/// Times that differ by rounding alone are equal.
bool better(const Candidate &a, const Candidate &b) {
  if (std::abs(a.seconds - b.seconds) > 1e-9 * b.seconds)
    return a.seconds < b.seconds;
  const int64_t mine = largestStage(a.result), other = largestStage(b.result);
  return mine != other ? mine < other : a.index < b.index;
}

/// `best` is the chosen plan, whose step has the unit of times.
std::string describe(const std::string &name, const Face &face,
                     const Face &best) {
  std::string shape = std::to_string(face.starts.size()) +
                      (face.starts.size() == 1 ? " stage" : " stages");
  if (std::any_of(face.replicas.begin(), face.replicas.end(),
                  [](int r) { return r > 1; }))
    shape += " (replicas " + replicasText(face.replicas).substr(0, 60) + ")";
  if (std::find(face.recompute.begin(), face.recompute.end(), true) !=
      face.recompute.end())
    shape += ", activations computed again";
  // Of what is printed: less than that is no loss.
  const double behind =
      best.seconds > 0 ? 100 * (face.seconds / best.seconds - 1) : 0;
  char time[32] = "as fast", text[240];
  if (behind >= 0.05)
    std::snprintf(time, sizeof time, "%+.1f %%", behind);
  std::snprintf(text, sizeof text, "%.60s, %.140s: %s a step, %s", name.c_str(),
                shape.c_str(),
                report::seconds(face.stepSeconds, best.stepSeconds).c_str(),
                time);
  return text;
}

} // namespace

/// Indices of the requests, the most promising first; equals stay in order.
static std::vector<std::pair<double, size_t>>
byPromise(const std::vector<PlanRequest> &requests,
          const BoundFunction &bound) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < requests.size(); ++i)
    order.push_back(
        {perMicrobatch(requests[i], bound ? bound(i) : stepBound(requests[i])),
         i});
  sortBy(order, [](const auto &entry) { return entry.first; });
  return order;
}

StrategyChoice chooseStrategy(const std::vector<PlanRequest> &requests,
                              const PlanFunction &plan,
                              const BoundFunction &bound) {
  if (requests.empty())
    throw Failure(Exit::Usage, "no strategy to choose from");
  // All are looked at quickly; what leads is then searched in earnest.
  const bool many = requests.size() > 4;
  const double quick = many ? 1.0 / 32 : 0.25, earnest = 0.25;
  StrategyChoice choice;
  choice.stepSeconds.assign(requests.size(), std::nan(""));
  auto planned = [&](size_t i, double effort) {
    PlanRequest asked = requests[i];
    asked.baselines = false;
    asked.explainNoFit = false;
    asked.effort *= effort;
    OrderedPlan made =
        plan ? plan(i, asked) : OrderedPlan{asked, makePlan(asked)};
    return Candidate{i, perMicrobatch(asked, made.result.stepSeconds),
                     std::move(made.request), std::move(made.result)};
  };
  std::optional<Candidate> best, second;
  std::vector<Face> seen; // but for what nobody could have
  auto see = [&](const Candidate &made) {
    const int64_t limit = made.request.trueLimit;
    if (limit <= 0 || peakBytes(made.result.stages) <= limit)
      seen.push_back(faceOf(made));
  };
  auto attempt = [&](size_t i, double effort) -> std::optional<Candidate> {
    try {
      return planned(i, effort);
    } catch (const Failure &failure) {
      if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
        throw;
      return std::nullopt;
    }
  };
  for (auto [least, i] : byPromise(requests, bound)) {
    // Only what can no longer be second place to see is left out.
    if (best)
      if (auto runner = runnerUpOf(seen, faceOf(*best));
          runner != seen.end() && least > runner->seconds)
        continue;
    if (std::optional<Candidate> tried = attempt(i, quick)) {
      Candidate &made = *tried;
      choice.stepSeconds[i] = made.result.stepSeconds;
      see(made);
      if (!best || better(made, *best))
        second = std::move(best), best = std::move(made);
      else if (!second || better(made, *second))
        second = std::move(made);
    }
  }
  auto search = [&](std::optional<Candidate> &leader, double effort) {
    if (auto again = attempt(leader->index, effort);
        again && better(*again, *leader)) {
      choice.stepSeconds[again->index] = again->result.stepSeconds;
      see(*again);
      leader = std::move(again);
    }
  };
  for (std::optional<Candidate> *leader : {&best, &second})
    if (many && *leader)
      search(*leader, earnest);
  if (second && better(*second, *best))
    std::swap(best, second);
  // As who asks for the winner by name.
  if (best && requests[best->index].topology.devices() <= kSmallCluster)
    search(best, 1);
  if (!best) { // the first one says why, or fits with more effort
    const PlanRequest &first = requests.front();
    OrderedPlan made =
        plan ? plan(0, first) : OrderedPlan{first, makePlan(first)};
    choice.stepSeconds[0] = made.result.stepSeconds;
    choice.request = std::move(made.request);
    choice.result = std::move(made.result);
    return choice;
  }
  const Face chosen = faceOf(*best);
  choice.chosen = best->index;
  choice.request = std::move(best->request);
  const PlanRequest &first = requests[best->index];
  choice.request.baselines = first.baselines;
  choice.request.explainNoFit = first.explainNoFit;
  choice.request.effort = first.effort;
  choice.result = std::move(best->result);
  if (choice.request.baselines)
    choice.result.baselines = priceBaselines(choice.request, choice.result);
  if (auto face = runnerUpOf(seen, chosen); face != seen.end())
    choice.result.runnerUp =
        describe(requests[face->index].strategy.name, *face, chosen);
  return choice;
}

} // namespace pipec::plan
