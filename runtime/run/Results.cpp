//===- Results.cpp - what is known after a run ----------------------------===//
#include "runtime/run/Results.h"
#include "report/Prediction.h"
#include "support/Median.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace pipec {

std::string pack(const RankResult &result) {
  std::string bytes;
  auto add = [&](const void *data, size_t size) {
    bytes.append(static_cast<const char *>(data), size);
  };
  add(&result.figures, sizeof result.figures);
  add(&result.droppedEvents, sizeof result.droppedEvents);
  const auto totals = static_cast<int64_t>(result.totals.size());
  add(&totals, sizeof totals);
  add(result.totals.data(), result.totals.size() * sizeof(TaskTotal));
  add(result.events.data(), result.events.size() * sizeof(Event));
  return bytes;
}

RankResult unpack(const std::string &bytes) {
  RankResult result;
  const char *at = bytes.data();
  auto take = [&](void *data, size_t size) {
    std::memcpy(data, at, size);
    at += size;
  };
  take(&result.figures, sizeof result.figures);
  take(&result.droppedEvents, sizeof result.droppedEvents);
  int64_t totals = 0;
  take(&totals, sizeof totals);
  result.totals.resize(static_cast<size_t>(totals));
  take(result.totals.data(), result.totals.size() * sizeof(TaskTotal));
  const auto left = static_cast<size_t>(bytes.data() + bytes.size() - at);
  result.events.resize(left / sizeof(Event));
  take(result.events.data(), left);
  return result;
}

void chooseDrawn(const plan::Plan &plan, int64_t firstStep, int64_t lastStep,
                 Results &results) {
  const int64_t steps = std::max<int64_t>(0, lastStep - firstStep);
  results.firstStep = firstStep;
  if (plan.strategy.update == "round") {
    results.drawnStep = firstStep;
    results.drawnSteps = std::min(steps, report::streamWindow(plan));
  } else {
    results.drawnStep =
        firstStep + std::clamp<int64_t>(steps - 1, 0, int64_t(2));
    results.drawnSteps = 1;
  }
}

double usualStep(const plan::Plan &plan, const std::vector<double> &seconds) {
  if (seconds.empty())
    return 0;
  std::vector<double> warm(seconds.begin() + (seconds.size() > 1),
                           seconds.end());
  // Microbatches of a stream come in bursts: only their mean says anything.
  if (plan.strategy.update == "round")
    return std::accumulate(warm.begin(), warm.end(), 0.0) /
           static_cast<double>(warm.size());
  return median(std::move(warm));
}

/// Between which the middle half of the warm steps lies; of a stream, whose
/// microbatches come in bursts, and of a few steps nothing.
static std::pair<double, double> quartiles(const plan::Plan &plan,
                                           std::vector<double> seconds) {
  constexpr size_t kFew = 8;
  if (plan.strategy.update == "round" || seconds.size() <= kFew)
    return {0, 0};
  std::sort(seconds.begin() + 1, seconds.end());
  const size_t quarter = (seconds.size() - 1) / 4;
  return {seconds[1 + quarter], seconds[seconds.size() - 1 - quarter]};
}

Summary summarize(const plan::Plan &plan, const Results &results) {
  Summary summary;
  const std::vector<double> &seconds = results.seconds;
  summary.steps = static_cast<int64_t>(seconds.size());
  summary.samples = results.samples;
  summary.hasLoss = !results.losses.empty();
  summary.final_loss = results.losses.empty() ? 0 : results.losses.back();
  summary.predicted_step_s = plan.predicted.step_s;
  summary.step_s = usualStep(plan, seconds);
  if (summary.step_s > 0)
    summary.samples_per_s = static_cast<double>(plan.training.microbatches) *
                            plan.training.microbatch_size / summary.step_s;
  for (const RankResult &rank : results.ranks)
    summary.ranks.push_back(rank.figures);
  return summary;
}

double othersShare(const Results &results) {
  std::vector<CoreUse> uses;
  for (const RankResult &rank : results.ranks)
    uses.push_back(rank.figures.cores);
  return shareOfOthers(uses);
}

report::MeasuredRun measured(const plan::Plan &plan, const Results &results) {
  const Summary summary = summarize(plan, results);
  report::MeasuredRun run;
  run.first_step = results.firstStep + 1;
  run.steps = summary.steps;
  run.step_s = summary.step_s;
  std::tie(run.quick_step_s, run.slow_step_s) =
      quartiles(plan, results.seconds);
  run.samples_per_s = summary.samples_per_s;
  run.losses = results.losses;
  double start = std::numeric_limits<double>::infinity();
  auto drawn = [&](const Event &event) {
    return event.step >= results.drawnStep &&
           event.step < results.drawnStep + results.drawnSteps;
  };
  for (const RankResult &rank : results.ranks)
    for (const Event &event : rank.events)
      if (drawn(event))
        start = std::min(start, event.start);
  run.others_share = othersShare(results);
  const bool stream = plan.strategy.update == "round";
  for (size_t r = 0; r < results.ranks.size(); ++r) {
    const RankResult &result = results.ranks[r];
    report::MeasuredRank rank;
    rank.rank = static_cast<int>(r);
    rank.peak_bytes = result.figures.peak_bytes;
    rank.process_bytes = result.figures.rss_bytes;
    rank.overhead_bytes = result.figures.overhead_bytes;
    rank.busy_s = result.figures.busy_s /
                  static_cast<double>(std::max<int64_t>(1, summary.steps));
    const std::vector<int> &stages = plan.ranks[r].stages;
    for (const Event &event : result.events) {
      if (!drawn(event))
        continue;
      report::MeasuredTask task;
      task.kind = event.kind;
      task.stage = event.stage >= 0 ? event.stage
                   : stages.empty() ? 0
                                    : stages.front();
      task.microbatch =
          stream ? event.step - results.drawnStep : event.microbatch;
      task.start_s = event.start - start;
      task.end_s = event.end - start;
      rank.tasks.push_back(task);
    }
    run.ranks.push_back(rank);
  }
  return run;
}

} // namespace pipec
