//===- Verify.h - the pipeline against the oracle ---------------*- C++ -*-===//
#pragma once

#include "runtime/data/DataSource.h"
#include "runtime/exec/TaskRunner.h"
#include "runtime/run/Export.h"
#include "runtime/run/Options.h"
#include "support/Failure.h"

namespace pipec {

/// The relative difference that a plan promises: 0 when every stage adds up its
/// weight gradients in the order of the microbatches (then all bits are equal),
/// otherwise 1e-5.
double promisedDifference(const plan::Plan &plan);

/// Rank 0: trains again with the oracle, compares the losses and every weight
/// and running statistic, and prints the largest differences.
/// Failure(BadNumbers) when one exceeds what is promised.
void verify(const plan::Plan &plan, const RunOptions &options,
            const DataSource &data, const Numbers &numbers,
            const std::vector<double> &losses, const Fetch &fetch);

/// pipec-run --oracle: the oracle's training alone, with metrics and export.
Exit runOracle(const plan::Plan &plan, const RunOptions &options);

} // namespace pipec
