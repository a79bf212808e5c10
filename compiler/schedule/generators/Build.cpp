//===- Build.cpp - what generators share ----------------------------------===//
#include "compiler/schedule/generators/Build.h"

#include <algorithm>

namespace pipec::schedule {

Schedule begin(const ScheduleRequest &request,
               std::vector<std::vector<int>> placement) {
  Schedule schedule;
  schedule.stages = static_cast<int>(placement.size());
  schedule.microbatches = request.microbatches;
  schedule.placement = std::move(placement);
  schedule.order.resize(request.devices);
  return schedule;
}

std::vector<int> replicasOf(const ScheduleRequest &request) {
  return request.replicas.empty() ? std::vector<int>(request.devices, 1)
                                  : request.replicas;
}

std::vector<int> localMicrobatches(const ScheduleRequest &request, int copy,
                                   int copies) {
  std::vector<int> result;
  for (int k = copy; k < request.microbatches; k += copies)
    result.push_back(k);
  return result;
}

std::vector<Action> oneForwardOneBackward(int stage,
                                          const std::vector<int> &microbatches,
                                          int warmup) {
  std::vector<Action> order;
  order.reserve(2 * microbatches.size());
  std::size_t forward = 0;
  auto next = [&] {
    if (forward < microbatches.size())
      order.push_back({Kind::F, stage, microbatches[forward++]});
  };
  for (int i = 0; i < warmup; ++i)
    next();
  for (int microbatch : microbatches) {
    order.push_back({Kind::B, stage, microbatch});
    next();
  }
  return order;
}

std::vector<int> pipelineDepths(const std::vector<int> &replicas) {
  std::vector<int> depths(replicas.size());
  int fromHere = 0;
  for (std::size_t s = replicas.size(); s-- > 0;) {
    fromHere += replicas[s];
    depths[s] = (fromHere - 1) / replicas[s] + 1;
  }
  return depths;
}

} // namespace pipec::schedule
