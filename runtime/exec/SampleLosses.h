//===- SampleLosses.h - the loss of a pass over the data --------*- C++ -*-===//
#pragma once

#include "runtime/data/DataSource.h"

#include <map>

namespace pipec {

/// How many samples and microbatches one pass over the data has. The last
/// microbatch is filled up with the first samples.
struct Pass {
  int64_t samples = 0; ///< 0: no input counts samples
  int64_t microbatches = 1;
};

/// The mean over what is counted in all samples, each of them once, from
/// plan::kLossOfSamples of every microbatch.
class SampleLosses {
public:
  SampleLosses(const plan::Plan &plan, const DataSource &data)
      : plan(plan), data(data) {}

  /// Where they are computed: `rows` samples of a microbatch.
  /// Failure(BadNumbers) when one is not finite, which names NaN in the data.
  void check(int64_t number, const char *sums, int64_t rows) const;

  /// Rank 0: the same, in any order of the microbatches.
  void take(int64_t number, const char *sums, int64_t rows);

  /// When all have been taken. Failure(BadNumbers) when nothing is counted.
  double mean() const;

private:
  struct Sum {
    double terms = 0, counted = 0;
  };
  const plan::Plan &plan;
  const DataSource &data;
  Sum sum;          ///< of the microbatches before `next`
  int64_t next = 0; ///< they are added in order, which decides about the bits
  std::map<int64_t, Sum> early;
};

} // namespace pipec
