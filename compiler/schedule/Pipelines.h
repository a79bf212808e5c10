//===- Pipelines.h - several pipelines of one order -------------*- C++ -*-===//
//
// Data parallelism around a pipeline: every copy has all stages, and each runs
// the same order on its share of the microbatches, the k-th on copy k mod r.
//
//   gpipe, P = 2, M = 3, two pipelines (devices 0 and 2, 1 and 3):
//   0 |F0F2......B0==B2==
//   1 |F1....B1==........
//   2 |..F0F2B0==B2==....
//   3 |..F1B1==..........
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Generator.h"

namespace pipec::schedule {

/// Whether copies of a pipeline of that schedule may stand beside each other:
/// not where it has several itself, nor where it cuts microbatches.
bool mayRepeat(const ScheduleRow &row);

/// `one`, of ceil(microbatches / copies) microbatches and one copy of each
/// stage, once for every copy that `placement` has of its stages; pipelines
/// without a last microbatch leave it out. Throws Failure(Internal) unless
/// stages that share a device in `one` share one in every copy.
Schedule repeated(const Schedule &one, int microbatches,
                  std::vector<std::vector<int>> placement);

} // namespace pipec::schedule
