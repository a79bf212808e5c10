#include "compiler/plan/Choose.h"

#include "compiler/plan/Baselines.h"
#include "compiler/plan/BehindText.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/StableOrder.h"
#include "compiler/plan/StepBound.h"
#include "support/Ahead.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

namespace pipec::plan {

namespace {

/// Devices up to which the winner is searched for with all effort: on 1,024
/// GPT-3 takes as long for one strategy as for the comparison.
constexpr int kSmallCluster = 32;

/// Contenders for second place that are searched for like the winner: at a
/// glance some are a few percent slower than they turn out, each in its own
/// way.
constexpr size_t kForSecond = 3;

/// Little effort leaves a plan by so much slower than much of it, at most: what
/// is further behind on a part of the devices is not searched in earnest.
constexpr double kWithinReach = 1.1;

constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// Steps of strategies without a barrier are microbatches: compare those.
double perMicrobatch(const PlanRequest &request, double stepSeconds) {
  return stepSeconds / request.microbatches;
}

struct Candidate {
  size_t index;
  double seconds; ///< a microbatch
  PlanRequest request;
  PlanResult result;
};

SeenPlan seenPlan(const Candidate &candidate, size_t contender) {
  SeenPlan seen{contender,
                candidate.request.strategy.name,
                candidate.seconds,
                candidate.result.stepSeconds,
                {},
                {},
                {}};
  for (const StagePlan &stage : candidate.result.stages) {
    seen.starts.push_back(stage.firstNode);
    seen.replicas.push_back(stage.replicas);
    seen.recompute.push_back(stage.recompute);
  }
  return seen;
}

/// Who has the same and takes as long is a twin under another name.
bool areTwins(const SeenPlan &a, const SeenPlan &b) {
  return a.starts == b.starts && a.replicas == b.replicas &&
         a.recompute == b.recompute &&
         std::abs(a.seconds - b.seconds) <= 1e-6 * a.seconds;
}

/// The fastest of those that are no twin of `best`; none: null.
const SeenPlan *runnerUpOf(const std::vector<SeenPlan> &all,
                           const SeenPlan &best) {
  const SeenPlan *second = nullptr;
  for (const SeenPlan &plan : all)
    if (plan.contender != best.contender && !areTwins(plan, best) &&
        (!second || plan.seconds < second->seconds))
      second = &plan;
  return second;
}

/// Times that differ by rounding alone are equal.
bool better(const Candidate &a, const Candidate &b) {
  if (std::abs(a.seconds - b.seconds) > 1e-9 * b.seconds)
    return a.seconds < b.seconds;
  const int64_t mine = peakBytes(a.result.stages),
                other = peakBytes(b.result.stages);
  return mine != other ? mine < other : a.index < b.index;
}

/// `best` is the chosen plan, whose step has the unit of times.
std::string describe(const SeenPlan &plan, const SeenPlan &best) {
  std::string shape = std::to_string(plan.starts.size()) +
                      (plan.starts.size() == 1 ? " stage" : " stages");
  if (std::any_of(plan.replicas.begin(), plan.replicas.end(),
                  [](int r) { return r > 1; }))
    shape += " (replicas " + shortReplicas(plan.replicas) + ")";
  if (const auto again = std::ranges::count(plan.recompute, true);
      again == std::ssize(plan.recompute))
    shape += ", activations computed again";
  else if (again > 0)
    shape +=
        ", activations of " + std::to_string(again) + " stages computed again";
  char text[240];
  std::snprintf(text, sizeof text, "%.60s, %.140s: %s", plan.strategy.c_str(),
                shape.c_str(),
                behindText(plan.stepSeconds, best.stepSeconds,
                           best.seconds > 0 ? plan.seconds / best.seconds : 1)
                    .c_str());
  return text;
}

/// Indices of the requests, the most promising first; equals stay in order.
std::vector<std::pair<double, size_t>>
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

/// The best of requests for one cluster, as who asks for these alone finds it.
class Comparison {
public:
  /// `others`: how many contenders there were before these.
  Comparison(const std::vector<PlanRequest> &requests, const PlanFunction &plan,
             const BoundFunction &bound, size_t others)
      : requests(requests), plan(plan), bound(bound), others(others),
        stepSeconds(requests.size(), std::nan("")) {}

  /// Nothing where none fits or works, or none can be faster than `below` a
  /// microbatch.
  std::optional<Candidate> run(double below = kUnknown);

  SeenPlan seenOf(const Candidate &made) const {
    return seenPlan(made, others + made.index);
  }

  const std::vector<PlanRequest> &requests;
  const PlanFunction &plan;
  const BoundFunction &bound;
  const size_t others;
  std::vector<double> stepSeconds;
  std::vector<SeenPlan> seen; ///< but for what nobody could have

private:
  std::optional<Candidate> attempt(size_t i, double effort) const;
  /// Attempts of one effort, which cores that are free make ahead.
  struct Attempts : Ahead<std::optional<Candidate>> {
    Attempts(const Comparison &all, double effort)
        : Ahead([&all, effort](size_t i) { return all.attempt(i, effort); }),
          all(all) {}
    std::optional<Candidate> of(size_t i) {
      const Phase one(all.requests[i].strategy.name);
      return take(i);
    }
    const Comparison &all;
  };
  void see(const Candidate &made);
  /// What would be slower than second place, where there is one.
  double secondPlace() const;
  void glance(double below, double effort);
  void search(std::optional<Candidate> &leader, Attempts &attempts);
  std::vector<size_t> mayBeSecond() const;
  void searchInEarnest();

  std::optional<Candidate> best, second;
};

std::optional<Candidate> Comparison::attempt(size_t i, double effort) const {
  PlanRequest asked = requests[i];
  asked.baselines = false;
  asked.explainNoFit = false;
  asked.effort *= effort;
  try {
    OrderedPlan made =
        plan ? plan(i, asked) : OrderedPlan{asked, makePlan(asked)};
    return Candidate{i, perMicrobatch(asked, made.result.stepSeconds),
                     std::move(made.request), std::move(made.result)};
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
      throw;
    return std::nullopt;
  }
}

void Comparison::see(const Candidate &made) {
  stepSeconds[made.index] = made.result.stepSeconds;
  const int64_t limit = made.request.trueLimit;
  if (limit <= 0 || peakBytes(made.result.stages) <= limit)
    seen.push_back(seenOf(made));
}

double Comparison::secondPlace() const {
  const SeenPlan *runner = best ? runnerUpOf(seen, seenOf(*best)) : nullptr;
  return runner ? runner->seconds : kUnknown;
}

/// Plans all of them quickly, but for what can no longer be second place to
/// see. The first one alone (PlanFunction).
void Comparison::glance(double below, double effort) {
  Attempts attempts(*this, effort);
  const auto order = byPromise(requests, bound);
  Phase strategies("strategy", std::ssize(requests));
  for (size_t k = 0; k < order.size(); ++k) {
    strategies.next();
    const auto [least, i] = order[k];
    if (least >= below || least > secondPlace())
      continue;
    std::optional<Candidate> tried = attempts.of(i);
    if (tried) {
      see(*tried);
      if (!best || better(*tried, *best))
        second = std::move(best), best = std::move(tried);
      else if (!second || better(*tried, *second))
        second = std::move(tried);
    }
    // What may be the best will be looked at, and before there is one the next;
    // what may only be second, perhaps not.
    for (size_t later = k + 1; later < order.size(); ++later) {
      const auto [lowest, other] = order[later];
      if (lowest < below &&
          lowest <= (best ? best->seconds : order[k + 1].first))
        attempts.want(other);
      else
        attempts.drop(other);
    }
  }
}

void Comparison::search(std::optional<Candidate> &leader, Attempts &attempts) {
  const Phase deeper("in depth");
  if (auto again = attempts.of(leader->index);
      again && better(*again, *leader)) {
    see(*again);
    leader = std::move(again);
  }
}

/// Whether ranks outnumber the cores: orders then matter less, and each takes
/// long to judge.
bool takesTurns(const Topology &topology) {
  return topology.cores > 0 && topology.serverSize() > topology.cores;
}

/// Contenders for second place, the most promising first, and all that more
/// effort may make the fastest: those whose order is searched for, also where
/// they are the winner's twins so far.
std::vector<size_t> Comparison::mayBeSecond() const {
  std::vector<SeenPlan> order = seen;
  sortBy(order, [](const SeenPlan &plan) { return plan.seconds; });
  const SeenPlan winner = seenOf(*best);
  std::vector<size_t> found;
  size_t seconds = 0;
  for (const SeenPlan &plan : order) {
    const size_t index = plan.contender - others;
    const bool searches = requests[index].strategy.searches &&
                          !takesTurns(requests[index].topology),
               isTwin = areTwins(plan, winner);
    if (index == best->index || std::ranges::find(found, index) != found.end())
      continue;
    const bool mayWin =
        searches && plan.seconds <= kWithinReach * winner.seconds;
    if (mayWin || (!isTwin && seconds < kForSecond))
      found.push_back(index);
    seconds += !isTwin;
  }
  return found;
}

/// The winner as who asks for it by name. What second place costs is told
/// beside it: as who asks for these by name. One that turns out faster is the
/// winner.
void Comparison::searchInEarnest() {
  Attempts attempts(*this, 1);
  attempts.want(best->index);
  for (const size_t i : mayBeSecond())
    attempts.want(i);
  search(best, attempts);
  const std::vector<size_t> seconds = mayBeSecond();
  for (size_t i = 0; i < requests.size(); ++i)
    if (std::ranges::find(seconds, i) == seconds.end())
      attempts.drop(i);
  for (const size_t i : seconds) {
    std::optional<Candidate> again = attempts.of(i);
    if (!again)
      continue;
    see(*again);
    if (better(*again, *best))
      best = std::move(again);
  }
}

std::optional<Candidate> Comparison::run(double below) {
  // All are looked at quickly; what leads is then searched in earnest.
  const bool many = requests.size() > 4;
  const double quick = many ? 1.0 / 32 : 0.25, earnest = 0.25;
  glance(below, quick);
  if (!best || best->seconds > kWithinReach * below)
    return std::nullopt;
  if (many) {
    Attempts attempts(*this, earnest);
    for (const std::optional<Candidate> *leader : {&best, &second})
      if (*leader)
        attempts.want((*leader)->index);
    for (std::optional<Candidate> *leader : {&best, &second})
      if (*leader)
        search(*leader, attempts);
  }
  if (second && better(*second, *best))
    std::swap(best, second);
  if (requests[best->index].topology.devices() <= kSmallCluster)
    searchInEarnest();
  return std::move(best);
}

/// Makes `best` the choice; `first` is what was asked for.
void choose(StrategyChoice &choice, Candidate best, const PlanRequest &first,
            SeenPlan own) {
  choice.chosen = best.index;
  choice.request = std::move(best.request);
  choice.request.topology = first.topology;
  choice.request.baselines = first.baselines;
  choice.request.explainNoFit = first.explainNoFit;
  choice.request.effort = first.effort;
  choice.result = std::move(best.result);
  choice.own = std::move(own);
  if (choice.request.baselines)
    choice.result.baselines = priceBaselines(choice.request, choice.result);
}

void nameRunnerUp(StrategyChoice &choice) {
  const SeenPlan *plan = runnerUpOf(choice.seen, choice.own);
  if (!plan)
    return;
  choice.result.runnerUp = describe(*plan, choice.own);
  // A row of the same strategy has stages like the plan's: of the same shape it
  // is second place, whose time was searched for; of another it says so.
  const std::vector<int> &replicas = choice.own.replicas;
  for (Baseline &row : choice.result.baselines) {
    if (row.name != plan->strategy || !row.fits || replicas.size() < 2)
      continue;
    if (plan->replicas == replicas)
      row.stepSeconds = plan->stepSeconds;
    else if (row.note.empty())
      row.note = std::to_string(replicas.size()) + " stages, as the plan";
  }
}

} // namespace

StrategyChoice chooseStrategy(const std::vector<PlanRequest> &requests,
                              const PlanFunction &plan,
                              const BoundFunction &bound) {
  if (requests.empty())
    throw Failure(Exit::Usage, "no strategy to choose from");
  StrategyChoice choice;
  Comparison comparison(requests, plan, bound, 0);
  std::optional<Candidate> best = comparison.run();
  choice.stepSeconds = comparison.stepSeconds;
  choice.contenders = requests.size();
  if (!best) { // the first one says why, or fits with more effort
    const PlanRequest &first = requests.front();
    OrderedPlan made =
        plan ? plan(0, first) : OrderedPlan{first, makePlan(first)};
    choice.stepSeconds[0] = made.result.stepSeconds;
    choice.request = std::move(made.request);
    choice.result = std::move(made.result);
    return choice;
  }
  choice.seen = comparison.seen;
  SeenPlan own = comparison.seenOf(*best);
  const PlanRequest &asked = requests[best->index];
  choose(choice, std::move(*best), asked, std::move(own));
  nameRunnerUp(choice);
  return choice;
}

bool chooseOnFewer(const std::vector<PlanRequest> &requests,
                   StrategyChoice &choice, const PlanFunction &plan,
                   const BoundFunction &bound) {
  const double below = choice.own.seconds;
  Comparison comparison(requests, plan, bound, choice.contenders);
  std::optional<Candidate> best = comparison.run(below);
  choice.contenders += requests.size();
  choice.seen.insert(choice.seen.end(), comparison.seen.begin(),
                     comparison.seen.end());
  const bool isFaster = best && best->seconds < below * (1 - 1e-9);
  if (isFaster) {
    SeenPlan own = comparison.seenOf(*best);
    const PlanRequest asked = choice.request;
    choose(choice, std::move(*best), asked, std::move(own));
  }
  nameRunnerUp(choice);
  return isFaster;
}

} // namespace pipec::plan
