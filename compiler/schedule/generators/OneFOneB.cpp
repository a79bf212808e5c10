//===- OneFOneB.cpp - 1F1B with a flush, and PipeDream without ------------===//
//
// Stage i runs K_i forwards, then one backward and one forward in turn. K_i is
// what the stage holds at most, so memory does not grow with the number of
// microbatches. The default is the pipeline's depth from here, P-i (PipeDream-
// Flush, DAPPLE's P_A); when hops between devices take about as long as the
// work, K_i = 2(P-i)-1 (DAPPLE's P_B) hides them at about twice the memory.
// With r_i copies of a stage, microbatch k goes to copy k mod r_i, and K_i =
// floor((sum of r_j for j >= i, minus 1) / r_i) + 1 (PipeDream's 1F1B-RR).
//
// PipeDream runs the same order for ever; the window given here is what a run
// of M microbatches executes. Only its weight versions differ (Strategies.def).
//
//   1f1b, P = 4, M = 6:
//   0 |F0F1F2F3............B0==F4B1==F5B2==..B3==..B4==..B5==
//   1 |..F0F1F2........B0==F3B1==F4B2==F5B3==..B4==..B5==....
//   2 |....F0F1....B0==F2B1==F3B2==F4B3==F5B4==..B5==........
//   3 |......F0B0==F1B1==F2B2==F3B3==F4B4==F5B5==............
//
//   pipedream, P = 4, M = 6:
//   0 |F0F1F2F3............B0==F4B1==F5B2==..B3==..B4==..B5==
//   1 |..F0F1F2........B0==F3B1==F4B2==F5B3==..B4==..B5==....
//   2 |....F0F1....B0==F2B1==F3B2==F4B3==F5B4==..B5==........
//   3 |......F0B0==F1B1==F2B2==F3B3==F4B4==F5B5==............
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/Replay.h"
#include "compiler/schedule/generators/Build.h"
#include "support/Failure.h"

namespace pipec::schedule {

/// K per stage: as asked, or the depth of the pipeline from there.
static std::vector<int> warmups(const ScheduleRequest &request,
                                const std::vector<int> &replicas) {
  if (request.warmup.empty())
    return pipelineDepths(replicas);
  require(request.warmup.size() == replicas.size(),
          "1f1b: " + std::to_string(request.warmup.size()) +
              " warm-ups given for " + std::to_string(replicas.size()) +
              " stages");
  for (std::size_t s = 0; s < replicas.size(); ++s)
    require(request.warmup[s] >= 1, "1f1b: the warm-up of stage " +
                                        std::to_string(s) +
                                        " must be at least 1");
  return request.warmup;
}

Schedule make1F1B(const ScheduleRequest &request) {
  std::vector<int> replicas = replicasOf(request);
  std::vector<int> depth = warmups(request, replicas);
  Schedule schedule = begin(request, replicatedPlacement(replicas));
  for (int s = 0; s < schedule.stages; ++s)
    for (int c = 0; c < replicas[s]; ++c)
      schedule.order[schedule.placement[s][c]] = oneForwardOneBackward(
          s, localMicrobatches(request, c, replicas[s]), depth[s]);
  if (!request.warmup.empty())
    if (auto stuck = replay(schedule, {}))
      throw Failure(Exit::Usage,
                    "1f1b: these warm-ups deadlock (an earlier stage needs at "
                    "least as many as a later one): " +
                        stuck->cycle);
  return schedule;
}

Schedule makePipeDream(const ScheduleRequest &request) {
  return make1F1B(request);
}

} // namespace pipec::schedule
