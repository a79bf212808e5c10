#include "compiler/plan/ReduceOverlap.h"

#include "runtime/program/Buckets.h"
#include "runtime/program/Memory.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace pipec::plan {

int64_t reducedAtOnce(const DeviceModel &device) {
  return device.kind == "cpu" ? kPieceBytes : kMostSlice;
}

namespace {

/// When a stage's gradients begin to be complete, and when all are.
struct Complete {
  double begin = 0, end = 0;
};

Complete completeAt(const schedule::Schedule &order,
                    const schedule::Timeline &line, int stage) {
  Complete complete;
  for (int d : order.placement[static_cast<size_t>(stage)]) {
    const std::vector<schedule::Action> &actions =
        order.order[static_cast<size_t>(d)];
    const auto last = std::find_if(
        actions.rbegin(), actions.rend(), [&](const schedule::Action &a) {
          return a.stage == stage && a.kind != schedule::Kind::F;
        });
    if (last == actions.rend())
      continue;
    const auto at = static_cast<size_t>(actions.rend() - last) - 1;
    const double end = line.end[static_cast<size_t>(d)][at];
    const bool sends = stage > 0 && last->kind != schedule::Kind::W;
    complete.begin = std::max(
        complete.begin, sends ? end : line.start[static_cast<size_t>(d)][at]);
    complete.end = std::max(complete.end, end);
  }
  return complete;
}

} // namespace

std::vector<double> exposedReduction(const schedule::Schedule &order,
                                     const schedule::Timeline &line,
                                     const std::vector<StagePlan> &stages) {
  const auto devices = static_cast<size_t>(order.devices());
  std::vector<Complete> complete;
  for (size_t s = 0; s < stages.size(); ++s)
    complete.push_back(completeAt(order, line, static_cast<int>(s)));
  std::vector<size_t> sequence(stages.size());
  std::iota(sequence.begin(), sequence.end(), 0);
  std::sort(sequence.begin(), sequence.end(), [&](size_t a, size_t b) {
    return std::tie(complete[a].end, a) < std::tie(complete[b].end, b);
  });
  std::vector<double> busy(devices, 0); // until when its messages take
  for (size_t s : sequence) {
    const StagePlan &stage = stages[s];
    if (stage.allReduceSeconds <= 0)
      continue;
    const double lastBucket =
        static_cast<double>(bucketBytes(stage.parameterBytes, stage.replicas)) /
        static_cast<double>(stage.parameterBytes) * stage.allReduceSeconds;
    double begin = complete[s].begin;
    for (int d : order.placement[s])
      begin = std::max(begin, busy[static_cast<size_t>(d)]);
    const double end =
        std::max(begin + stage.allReduceSeconds, complete[s].end + lastBucket);
    for (int d : order.placement[s])
      busy[static_cast<size_t>(d)] = end;
  }
  for (size_t d = 0; d < devices; ++d)
    busy[d] =
        std::max(0.0, busy[d] - (line.end[d].empty() ? 0 : line.end[d].back()));
  return busy;
}

} // namespace pipec::plan
