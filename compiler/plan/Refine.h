//===- Refine.h - local search under the simulator --------------*- C++ -*-===//
#pragma once

#include "compiler/plan/StepModel.h"

namespace pipec::plan {

/// Moves single cuts along `starts` while the simulated step gets shorter, with
/// strides that halve, then makes one stage of two and two of another; stops at
/// a local optimum or when its effort is spent. Returns the step time of the
/// split it leaves behind.
double refine(const StepModel &model, const std::vector<size_t> &starts,
              Split &split);

/// The same for the bytes of the fullest device, down to what is `enough`.
/// Returns them.
int64_t refinePeak(const StepModel &model, const std::vector<size_t> &starts,
                   Split &split, int64_t enough = 0);

/// Simulates every split into that many stages when they are few enough, and
/// replaces `split` by the best. False when there are too many.
bool exhaust(const StepModel &model, const std::vector<size_t> &starts,
             Split &split, double &seconds);

} // namespace pipec::plan
