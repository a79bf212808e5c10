//===- GPipe.cpp - all forwards, then all backwards -----------------------===//
//
// Huang et al., NeurIPS 2019. Backwards run in microbatch order, not reversed,
// so that gradients add up in the same order as in every other schedule.
// Makespan (M+P-1)(F+B) on uniform stages; every stage holds M microbatches.
//
//   gpipe, P = 4, M = 4:
//   0 |F0F1F2F3..................B0==B1==B2==B3==
//   1 |..F0F1F2F3............B0==B1==B2==B3==....
//   2 |....F0F1F2F3......B0==B1==B2==B3==........
//   3 |......F0F1F2F3B0==B1==B2==B3==............
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/generators/Build.h"

namespace pipec::schedule {

Schedule makeGPipe(const ScheduleRequest &request) {
  std::vector<int> replicas = replicasOf(request);
  Schedule schedule = begin(request, replicatedPlacement(replicas));
  for (int s = 0; s < schedule.stages; ++s)
    for (int c = 0; c < replicas[s]; ++c) {
      auto local = localMicrobatches(request, c, replicas[s]);
      schedule.order[schedule.placement[s][c]] =
          oneForwardOneBackward(s, local, static_cast<int>(local.size()));
    }
  return schedule;
}

} // namespace pipec::schedule
