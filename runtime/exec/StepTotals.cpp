//===- StepTotals.cpp - what a rank's steps consist of --------------------===//
#include "runtime/exec/StepTotals.h"

#include <algorithm>
#include <utility>

namespace pipec {
namespace {

/// Beyond that many every second one is forgotten, so that runs of any length
/// take little memory.
constexpr size_t kMostSteps = 1024;

void addTo(std::vector<TaskTotal> &totals, const TaskTotal &more) {
  for (TaskTotal &total : totals)
    if (total.kind == more.kind && total.stage == more.stage) {
      total.calls += more.calls;
      total.seconds += more.seconds;
      total.coreSeconds += more.coreSeconds;
      return;
    }
  totals.push_back(more);
}

} // namespace

void StepTotals::add(char kind, int stage, int64_t step, double seconds,
                     double coreSeconds) {
  if (step >= first)
    addTo(open.totals, {kind, stage, 1, seconds, coreSeconds});
}

void StepTotals::endStep(int64_t step, double seconds) {
  Step ended = std::exchange(open, {});
  if (step < first || (step - first) % stride != 0)
    return;
  ended.seconds = seconds;
  steps.push_back(std::move(ended));
  if (steps.size() < kMostSteps)
    return;
  for (size_t i = 0; 2 * i < steps.size(); ++i)
    std::swap(steps[i], steps[2 * i]);
  steps.resize((steps.size() + 1) / 2);
  stride *= 2;
}

std::vector<const StepTotals::Step *> StepTotals::sorted() const {
  std::vector<const Step *> order;
  for (const Step &step : steps)
    order.push_back(&step);
  std::sort(order.begin(), order.end(), [](auto *a, auto *b) {
    return std::pair(a->seconds, a) < std::pair(b->seconds, b);
  });
  return order;
}

std::vector<TaskTotal> StepTotals::middle() const {
  if (steps.empty())
    return open.totals;
  const auto order = sorted();
  std::vector<TaskTotal> sums;
  for (size_t i = order.size() / 4; i < order.size() - order.size() / 4; ++i)
    for (const TaskTotal &total : order[i]->totals)
      addTo(sums, total);
  return sums;
}

} // namespace pipec
