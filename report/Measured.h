//===- Measured.h - what a run of a plan measured ---------------*- C++ -*-===//
//
// Filled by the runtime at the end of a run; the report shows it beside what
// the plan predicted. Everything but `steps` and `step_s` may be left empty.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <vector>

namespace pipec::report {

/// One task of the step that is drawn. Times are seconds from the start of that
/// step, on a clock that all ranks share.
struct MeasuredTask {
  char kind = 'F'; ///< F, B, I, W as in the plan; U update, R sums of gradients
                   ///< over replicas and uses, T running statistics
  int stage = 0;
  int64_t microbatch = 0; ///< within the step
  double start_s = 0, end_s = 0;
};

struct MeasuredRank {
  int rank = 0;
  int64_t peak_bytes = 0;    ///< of the arena, as Plan's peak_bytes
  int64_t process_bytes = 0; ///< resident size of the whole process; 0 unknown
  double busy_s = 0;         ///< computing, a step on average
  std::vector<MeasuredTask> tasks;
  int64_t overhead_bytes = 0; ///< of a GPU's memory, beside the arena
};

struct MeasuredRun {
  int64_t first_step = 1; ///< number of the first step (after a resume, later)
  int64_t steps = 0;      ///< done by this run
  double step_s = 0;      ///< a step, without the first ones that warm up
  double quick_step_s = 0, slow_step_s = 0; ///< the steps' quartiles; 0: few
  double samples_per_s = 0;
  std::vector<double> losses; ///< by step, from first_step
  double others_share = 0; ///< of rank 0's cores: what went to other programs
  std::vector<MeasuredRank> ranks;
};

} // namespace pipec::report
