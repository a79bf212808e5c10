//===- Verify.cpp - the pipeline against the oracle -----------------------===//
#include "runtime/run/Verify.h"
#include "report/Format.h"
#include "runtime/control/Stop.h"
#include "runtime/program/Sequence.h"
#include "runtime/run/LearningRate.h"
#include "runtime/run/Metrics.h"
#include "runtime/run/Oracle.h"
#include "runtime/run/Ranks.h"
#include "runtime/run/Results.h"
#include "runtime/run/StepPhases.h"
#include "runtime/state/Tensors.h"
#include "support/Printable.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <sys/resource.h>

namespace pipec {

double promisedDifference(const plan::Plan &plan) {
  if (plan.strategy.update == "round")
    return 0; // every update has one gradient of each replica
  for (const plan::Rank &rank : plan.ranks) {
    const plan::Sequence sequence = plan::Sequence::step(plan, rank.rank);
    std::map<int, int64_t> last;
    for (int64_t i = 0; i < sequence.size(); ++i) {
      const plan::Task task = sequence.at(i);
      if (task.kind != 'B' && task.kind != 'W')
        continue;
      auto [entry, first] = last.emplace(task.stage, task.microbatch);
      if (!first && task.microbatch < entry->second)
        return 1e-5;
      entry->second = task.microbatch;
    }
  }
  return 0;
}

namespace {

/// The largest difference so far, and of what.
struct Largest {
  double value = 0;
  std::string name = "none";

  void see(double difference, const std::string &of) {
    // NaN compares with nothing: it is the largest there is.
    if (!(difference <= value))
      value = difference, name = of;
  }
};

/// Largest difference of two tensors of floats, relative to the largest value.
double difference(const float *a, const float *b, int64_t count) {
  double most = 0, scale = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double gap = std::abs(double(a[i]) - b[i]);
    if (!(gap <= most))
      most = gap;
    scale = std::max(scale, std::abs(double(b[i])));
  }
  return most == 0 ? 0 : most / std::max(scale, 1e-30);
}

void compareTensors(const plan::Plan &plan, const Oracle &oracle,
                    const Fetch &fetch, Largest &largest) {
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const plan::Weight &weight = plan.weights[i];
    const auto index = static_cast<int>(i);
    if ((weight.role != "weight" && weight.role != "state") ||
        ownerOf(plan, index) < 0)
      continue;
    std::vector<char> reference;
    reference.reserve(static_cast<size_t>(weight.bytes));
    oracle.read(index, [&](const char *data, int64_t bytes) {
      reference.insert(reference.end(), data, data + bytes);
    });
    const char *expected = reference.data();
    fetch(index, [&](const char *data, int64_t bytes) {
      if (weight.dtype == "float32")
        largest.see(difference(reinterpret_cast<const float *>(data),
                               reinterpret_cast<const float *>(expected),
                               bytes / 4),
                    weight.name);
      else
        largest.see(std::memcmp(data, expected, static_cast<size_t>(bytes)) !=
                        0,
                    weight.name);
      expected += bytes;
    });
  }
}

} // namespace

void verify(const plan::Plan &plan, const RunOptions &options,
            const DataSource &data, const Numbers &numbers,
            const std::vector<double> &losses, const Fetch &fetch) {
  Oracle oracle(plan, options.plan, data, numbers);
  Largest loss, tensor;
  const auto steps = static_cast<int64_t>(losses.size());
  for (int64_t t = 0; t < steps; ++t) {
    const double expected = oracle.step(steps), found = losses[t];
    const double gap =
        expected == found
            ? 0
            : std::abs(expected - found) / std::max(std::abs(expected), 1e-30);
    loss.see(gap, "step " + std::to_string(t + 1));
  }
  compareTensors(plan, oracle, fetch, tensor);
  const double promised = promisedDifference(plan);
  char text[512];
  std::snprintf(text, sizeof text,
                "verified %s against the oracle: largest relative "
                "difference of a loss %.3g (%s), of a tensor %.3g (%s); "
                "promised %.3g",
                report::plural(steps, "step").c_str(), loss.value,
                loss.name.c_str(), tensor.value, tensor.name.c_str(), promised);
  std::cout << printable(text) << "\n" << std::flush;
  if (!(loss.value <= promised && tensor.value <= promised))
    throw Failure(Exit::BadNumbers, text);
}

Exit runOracle(const plan::Plan &plan, const RunOptions &options) {
  const DataSource data(plan, options.data, options.shuffle);
  for (const plan::Stage &stage : plan.stages)
    for (const plan::StageInput &input : stage.inputs)
      data.checkValues(input.input);
  if (!options.exportFile.empty())
    checkExport(plan, options.plan, options.exportFile);
  chooseThreads(plan, options, 0);
  const Numbers numbers{options.seed, learningRate(options.rate)};
  Metrics metrics(options.metrics, 0);
  Oracle oracle(plan, options.plan, data, numbers);
  Results results;
  const double samples = static_cast<double>(plan.training.microbatches) *
                         plan.training.microbatch_size;
  StepPhases phases(true, "training", options.steps);
  while (oracle.done() < options.steps && !stopRequested()) {
    const double start = now();
    const double loss = oracle.step(options.steps);
    const double seconds = now() - start;
    if (!std::isfinite(loss))
      throw Failure(Exit::BadNumbers, "the loss of step " +
                                          std::to_string(oracle.done()) +
                                          " is not finite");
    metrics.step(oracle.done() - 1, loss, seconds, samples / seconds);
    results.losses.push_back(loss);
    results.seconds.push_back(seconds);
    phases.at(oracle.done(), loss);
  }
  const bool stopped = oracle.done() < options.steps;
  if (!stopped && !options.exportFile.empty())
    exportModel(plan, options.plan, options.exportFile,
                [&](int index, const Sink &sink) { oracle.read(index, sink); });
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  RankResult rank;
  rank.figures.peak_bytes = rank.figures.predicted_peak_bytes = oracle.peak();
  rank.figures.rss_bytes = int64_t(usage.ru_maxrss) * 1024;
  for (double time : results.seconds)
    rank.figures.busy_s += time;
  results.ranks.push_back(rank);
  const Summary summary = summarize(plan, results);
  metrics.summary(summary);
  if (options.json)
    std::cout << toJson(summary) << "\n";
  else
    std::cout << report::plural(summary.steps, "step")
              << " without a pipeline, final loss " << summary.final_loss
              << ", " << report::seconds(summary.step_s) << " a step\n";
  return stopped ? Exit::Stopped : Exit::Ok;
}

} // namespace pipec
