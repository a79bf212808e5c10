//===- Naive.cpp - inter-layer model parallelism --------------------------===//
//
// One microbatch travels through all stages and back before the next enters;
// one device works at a time. Makespan M*P*(F+B), each device busy 1/P of it.
// With replicated stages a copy takes its next microbatch when it is back.
//
// dp is the other degenerate case: one stage, every device a copy of it.
//
//   naive, P = 4, M = 2:
//   0 |F0..................B0==F1..................B1==
//   1 |..F0............B0==......F1............B1==....
//   2 |....F0......B0==............F1......B1==........
//   3 |......F0B0==..................F1B1==............
//
//   dp, P = 4, M = 8:
//   0 |F0B0==F4B4==
//   1 |F1B1==F5B5==
//   2 |F2B2==F6B6==
//   3 |F3B3==F7B7==
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Build.h"

namespace pipec::schedule {

Schedule makeNaive(const ScheduleRequest &request) {
  std::vector<int> replicas = replicasOf(request);
  Schedule schedule = begin(request, replicatedPlacement(replicas));
  for (int s = 0; s < schedule.stages; ++s)
    for (int c = 0; c < replicas[s]; ++c)
      schedule.order[schedule.placement[s][c]] = oneForwardOneBackward(
          s, localMicrobatches(request, c, replicas[s]), 1);
  return schedule;
}

Schedule makeDataParallel(const ScheduleRequest &request) {
  require(request.replicas.size() <= 1,
          "dp has one stage; replicas may only give its number of copies");
  ScheduleRequest oneStage = request;
  oneStage.replicas = {request.devices};
  return makeNaive(oneStage);
}

} // namespace pipec::schedule
