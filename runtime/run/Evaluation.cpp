//===- Evaluation.cpp - one pass over the data without updates ------------===//
#include "runtime/control/Stop.h"
#include "runtime/run/Session.h"
#include "runtime/run/StepPhases.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace pipec {
namespace {

/// Asking rank 0 whether to stop makes all ranks wait for it: not every step.
constexpr int64_t kAskToStop = 16;

/// Of a microbatch.
bool hasLoss(const plan::Plan &plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](auto &stage) { return stage.computes_loss; });
}

bool hasLossOfSamples(const plan::Plan &plan) {
  return std::any_of(
      plan.outputs.begin(), plan.outputs.end(),
      [](auto &output) { return output.name == plan::kLossOfSamples; });
}

} // namespace

/// Nothing waits at the end of a step: the pipeline stays full from the first
/// microbatch to the last.
void Session::evaluate() {
  StepPhases phases(leads(), "running", lastStep);
  const int64_t count = plan.training.microbatches;
  const bool loss = hasLoss(plan);
  double sum = 0;
  LossLedger ledger(plan, options.plan, *data, transport, watch, 0,
                    [&](int64_t step, const Losses &losses) {
                      for (int64_t k = 0; k < count; ++k)
                        if (step * count + k < pass.microbatches)
                          sum += losses[static_cast<size_t>(k)];
                    });
  TaskRunner runner(*state, watch, *data, recorder, numbers);
  StepExecutor executor(
      {*state, transport, watch, ledger, runner, recorder, outputs.get()});
  outputs->start();
  std::optional<WhileWaiting> polling;
  polling.emplace(watch, [&] { ledger.poll(), outputs->poll(); });
  const double start = now();
  for (; stepsDone < lastStep && !stopped; ++stepsDone) {
    executor.tasks(stepsDone);
    outputs->poll();
    if (stepsDone % kAskToStop == kAskToStop - 1)
      stopped = decideToStop();
    phases.at(stepsDone + 1);
  }
  executor.update(lastStep, false);
  council.agree("finishing", [&] { ledger.waitFor(0), outputs->drain(); });
  if (!stopped && loss)
    ledger.waitFor(lastStep);
  if (!stopped)
    outputs->finish();
  polling.reset();
  outputs->close();
  ledger.close();
  if (stopped)
    return;
  const double seconds = now() - start;
  double mean = std::nan("");
  council.agree("writing outputs", [&] {
    if (leads() && hasLossOfSamples(plan))
      mean = sampleLosses->mean();
    else if (loss)
      mean = sum / static_cast<double>(pass.microbatches);
    outputs->commit();
  });
  if (leads())
    conclude(seconds, mean);
}

/// What rank 0 reports of the pass.
void Session::conclude(double seconds, double loss) {
  const int64_t samples = std::max<int64_t>(1, pass.samples);
  results.samples = samples;
  results.seconds.assign(static_cast<size_t>(lastStep),
                         seconds / static_cast<double>(lastStep));
  for (const OutputLedger::Nan &nan : outputs->notNumbers()) {
    const std::string cause = data->notANumber(nan.number);
    note(nan.what + (cause.empty() ? data->infinite(nan.number) : cause));
  }
  if (std::isnan(loss))
    return;
  results.losses.push_back(loss);
  metrics->step(0, loss, seconds, static_cast<double>(samples) / seconds);
  if (!hasLossOfSamples(plan) &&
      pass.samples % plan.training.microbatch_size != 0)
    note(std::to_string(pass.samples) +
         " samples are no whole number of microbatches of " +
         std::to_string(plan.training.microbatch_size) +
         ": the last one is filled up with the first samples, which the loss "
         "counts twice, as the model computes it of whole microbatches");
}

} // namespace pipec
