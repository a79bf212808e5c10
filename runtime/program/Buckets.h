//===- Buckets.h - gradients that are summed as they come -------*- C++ -*-===//
//
// On GPUs the gradients of a stage's replicas are summed while the backward
// pass goes on. GRADIENTS is cut into buckets for that, contiguous and equally
// long but for the last; a bucket is summed once nothing more is added to it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/program/Plan.h"

#include <algorithm>

namespace pipec::plan {

/// What a replica sends another of a bucket: less is all latency, more than the
/// most takes memory and makes nothing faster.
constexpr int64_t kLeastSlice = 256 << 10, kMostSlice = 16 << 20;

/// Of one bucket; an eighth tells early gradients from late ones. The planner
/// prices with it what the last bucket takes.
constexpr int64_t bucketBytes(int64_t gradientBytes, int64_t replicas) {
  const int64_t eighth = (gradientBytes / 8 + 63) / 64 * 64;
  return std::min(gradientBytes, std::clamp(eighth, replicas * kLeastSlice,
                                            replicas * kMostSlice));
}

struct Buckets {
  int64_t bytes = 0; ///< of all
  int64_t size = 0;  ///< of one
  int64_t count = 0; ///< 0: nothing to sum
  int64_t begin(int64_t bucket) const { return bucket * size; }
  int64_t length(int64_t bucket) const {
    return bucket + 1 < count ? size : bytes - bucket * size;
  }
};

/// Of a stage that holds its weights itself (weightsStage).
Buckets bucketsOf(const Stage &stage);

} // namespace pipec::plan
