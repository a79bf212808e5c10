//===- Profile.cpp - measured times of a plan's stages --------------------===//
#include "compiler/plan/Profile.h"
#include "runtime/program/Memory.h"
#include "runtime/run/Results.h"
#include "support/OutputFile.h"

#include <algorithm>

namespace pipec {

namespace {

struct Average {
  double seconds = 0;
  int64_t calls = 0;
  double get() const {
    return calls ? seconds / static_cast<double>(calls) : 0;
  }
};

/// Calls of one kind over a stage's replicas. A rank of one thread is timed
/// while it has a core, so that ranks that take turns on the cores do not count
/// the others' time; several threads are timed by the clock.
Average average(const Results &results, int stage, char kind) {
  Average sum;
  for (const RankResult &rank : results.ranks)
    for (const TaskTotal &total : rank.totals)
      if (total.stage == stage && total.kind == kind) {
        sum.seconds +=
            rank.figures.threads == 1 ? total.coreSeconds : total.seconds;
        sum.calls += total.calls;
      }
  return sum;
}

plan::MeasuredStage measure(const plan::Plan &plan, const plan::Stage &stage,
                            const Results &results) {
  // Pieces of a sequence are stages of their own: together they are one.
  const int count = static_cast<int>(plan.stages.size()) / plan.strategy.slices;
  auto of = [&](char kind) {
    Average sum = average(results, stage.id, kind);
    for (int piece = 1; piece < plan.strategy.slices; ++piece)
      sum.seconds += average(results, stage.id + piece * count, kind).seconds;
    return sum;
  };
  plan::MeasuredStage measured;
  measured.firstNode = static_cast<size_t>(stage.first_node);
  measured.lastNode = static_cast<size_t>(stage.last_node);
  plan::MeasuredTimes &times = measured.times;
  times.forwardSeconds = of('F').get();
  // A whole backward pass is divided as the plan's model divides it.
  const plan::Cost &cost = stage.cost;
  const double again = stage.recompute ? cost.forward_s : 0,
               inputs = std::max(0.0, cost.backward_input_s - again),
               modelled = inputs + cost.backward_weight_s;
  const double share = modelled > 0 ? inputs / modelled : 0.5;
  double whole = of('B').get(), input = of('I').get();
  const bool split = of('I').calls > 0;
  if (stage.recompute) // the forward, once more
    (split ? input : whole) =
        std::max(0.0, (split ? input : whole) - times.forwardSeconds);
  times.backwardInputSeconds = split ? input : share * whole;
  times.backwardWeightSeconds = split ? of('W').get() : (1 - share) * whole;
  const Average update = of('U');
  if (update.calls)
    measured.updateSeconds =
        (update.seconds + of('T').seconds + of('Z').seconds) /
        static_cast<double>(update.calls);
  return measured;
}

/// The step that the stages were measured in, where the planner can tell what
/// it would take: every stage is one of the model's own.
std::optional<plan::MeasuredStep>
stepOf(const plan::Plan &plan, const Results &results, size_t stages) {
  if (plan.strategy.update != "step" || stages != plan.stages.size() ||
      results.seconds.size() < 2)
    return std::nullopt;
  plan::MeasuredStep step;
  step.strategy = plan.strategy.name;
  step.microbatches = plan.training.microbatches;
  for (const plan::Stage &stage : plan.stages) {
    step.replicas.push_back(static_cast<int>(stage.ranks.size()));
    step.recompute.push_back(stage.recompute);
  }
  step.seconds = usualStep(plan, results.seconds);
  return step;
}

/// Of every rank alike; 0 where they differ.
int threadsOf(const Results &results) {
  int threads = 0;
  for (const RankResult &rank : results.ranks) {
    const int its = static_cast<int>(rank.figures.threads);
    if (threads && its != threads)
      return 0;
    threads = its;
  }
  return threads;
}

} // namespace

void writeProfile(const plan::Plan &plan, const Results &results,
                  const std::string &path) {
  plan::Profile profile;
  profile.origin = {plan.training.microbatch_size, threadsOf(results),
                    plan.cluster.kind == "cpu" ? "cpu" : "gpu",
                    plan.model.sha256, plan.training.precision};
  for (const plan::Stage &stage : plan.stages)
    if (plan::weightsStage(plan, stage.id) == stage.id)
      profile.stages.push_back(measure(plan, stage, results));
  profile.step = stepOf(plan, results, profile.stages.size());
  if (plan.cluster.kind == "cpu") // a GPU's times are its own
    profile.othersShare = othersShare(results);
  writeFile(path, plan::writeProfile(profile));
}

} // namespace pipec
