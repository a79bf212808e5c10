//===- Buckets.cpp - gradients that are summed as they come ---------------===//
#include "runtime/program/Buckets.h"
#include "runtime/program/Memory.h"

namespace pipec::plan {

Buckets bucketsOf(const Stage &stage) {
  const auto replicas = static_cast<int64_t>(stage.ranks.size());
  Buckets buckets;
  buckets.bytes = alignUp(regionOf(stage, "gradients").bytes);
  if (replicas < 2 || buckets.bytes == 0)
    return {};
  buckets.size = bucketBytes(buckets.bytes, replicas);
  buckets.count = (buckets.bytes + buckets.size - 1) / buckets.size;
  return buckets;
}

} // namespace pipec::plan
