//===- LossLedger.cpp - the losses of a run, at rank 0 --------------------===//
#include "runtime/exec/LossLedger.h"
#include "runtime/program/Sequence.h"
#include "runtime/state/Tensors.h"
#include "support/Printable.h"

#include <cmath>

namespace pipec {

double meanLoss(const Losses &losses) {
  double sum = 0;
  for (float loss : losses)
    sum += loss;
  return sum / static_cast<double>(losses.size());
}

LossLedger::LossLedger(const plan::Plan &plan, const std::string &folder,
                       const DataSource &data, Transport &transport,
                       Watch &watch, int64_t firstStep,
                       std::function<void(int64_t, const Losses &)> done)
    : plan(plan), folder(folder), data(data), transport(transport),
      watch(watch), next(firstStep), done(std::move(done)) {
  if (watch.rank != 0)
    return;
  for (const plan::Stage &stage : plan.stages)
    if (stage.computes_loss)
      for (int rank : stage.ranks)
        if (rank != 0) {
          Source &source = sources.emplace_back();
          source.rank = rank;
          source.request = transport.receive(rank, kTagLoss, &source.message,
                                             sizeof source.message);
        }
}

/// Why the loss of a microbatch is not finite, as far as its data tell, and
/// what helps.
static std::string reasonFor(const plan::Plan &plan, const std::string &folder,
                             const DataSource &data, int64_t step,
                             int64_t number) {
  if (const std::string nan = data.notANumber(number); !nan.empty())
    return nan;
  if (data.ignoresAllLabels(number))
    return "; all its labels are ignored, such a microbatch has no mean: leave "
           "these samples out";
  const std::string infinite = data.infinite(number);
  if (plan::forwardOnly(plan))
    return infinite;
  if (step == 0) { // no learning rate has been used
    if (const std::string name = weightWithNan(plan, folder); !name.empty())
      return "; the model's weight '" + printable(name) +
             "' has NaN before any update: mend the model";
    return infinite + (infinite.empty() ? "; " : "; if that is meant so, ") +
           "nothing is updated yet: the cause is in the model's weights, in "
           "what it computes or in the data (numbers too large, say)";
  }
  return infinite + (infinite.empty() ? "; " : "; if that is meant so, ") +
         "try a smaller learning rate or --clip-norm";
}

void LossLedger::record(int64_t step, int64_t microbatch, float loss) {
  if (!std::isfinite(loss))
    throw Failure(
        Exit::BadNumbers,
        "the loss of step " + std::to_string(step + 1) + ", microbatch " +
            std::to_string(microbatch) + " is " +
            (std::isnan(loss) ? "NaN" : "infinite") +
            reasonFor(plan, folder, data, step,
                      step * plan.training.microbatches + microbatch));
  const Message message{step, microbatch, loss};
  if (watch.rank == 0)
    return take(message);
  poll();
  Outgoing &entry = outgoing.emplace_back();
  entry.message = message;
  entry.request =
      transport.send(0, kTagLoss, &entry.message, sizeof entry.message);
}

void LossLedger::take(const Message &message) {
  const int count = plan.training.microbatches;
  Partial &step = partial[message.step];
  if (step.losses.empty())
    step.losses.resize(count), step.missing = count;
  step.losses[message.microbatch] = message.loss;
  --step.missing;
  for (auto first = partial.begin();
       first != partial.end() && first->first == next &&
       first->second.missing == 0;
       first = partial.erase(first)) {
    done(next, first->second.losses);
    ++next;
  }
}

void LossLedger::poll() {
  for (Source &source : sources)
    while (transport.done(source.request)) {
      const Message message = source.message;
      source.request = transport.receive(source.rank, kTagLoss, &source.message,
                                         sizeof source.message);
      take(message);
    }
  while (!outgoing.empty() && transport.done(outgoing.front().request))
    outgoing.pop_front();
}

void LossLedger::waitFor(int64_t step) {
  Operation operation;
  operation.what = "waiting for the loss";
  // Idle waiting polls too: no reference into `outgoing` may be kept meanwhile.
  if (watch.rank != 0)
    return watch.until(
        [&] {
          poll();
          return outgoing.empty();
        },
        operation, transport.bell());
  operation.step = next;
  watch.until(
      [&] {
        poll();
        return next >= step;
      },
      operation, transport.bell());
}

void LossLedger::close() {
  waitFor(next);
  for (Source &source : sources)
    transport.cancel(source.request);
}

} // namespace pipec
