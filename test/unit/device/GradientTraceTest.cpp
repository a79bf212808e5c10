//===- GradientTraceTest.cpp - when a task is done with gradients ---------===//
#include "runtime/exec/GradientTrace.h"

#include <gtest/gtest.h>

namespace pipec {
namespace {

constexpr int64_t kBucket = 256;

/// Weights of 64, 64, 128 and 64 numbers, one after the other.
plan::Plan weights(plan::Stage &stage) {
  plan::Plan plan;
  int64_t offset = 0;
  for (int64_t count : {64, 64, 128, 64}) {
    plan::Weight weight;
    weight.shape = {count};
    plan::StageWeight use;
    use.weight = static_cast<int>(plan.weights.size());
    use.gradients = {{0, offset}};
    stage.weights.push_back(use);
    plan.weights.push_back(weight);
    offset += count * 4;
  }
  return plan;
}

char *gradient(PipecFrame *frame, int64_t offset) {
  return frame->base[PIPEC_GRADIENTS] + offset;
}

/// Calls: a kernel on the last weight, a product into the middle of the third,
/// one that has nothing to do with gradients, a convolution into the first, and
/// the last weight again.
void backward(PipecFrame *frame) {
  PipecDevice *device = frame->device;
  char *arguments[] = {frame->base[PIPEC_STASH], gradient(frame, 1024)};
  device->launch(device, 0, 1, 32, 0, arguments, 2);
  device->matmul(device, nullptr, frame->base[PIPEC_IN], frame->scalars,
                 gradient(frame, 512 + 128));
  device->clear(device, frame->base[PIPEC_WORKSPACE], 64);
  device->conv(device, nullptr, 0, frame->base[PIPEC_IN], device->literals,
               gradient(frame, 0));
  device->launch(device, 1, 1, 32, 0, arguments, 2);
}

TEST(GradientTrace, SaysAfterWhichCall) {
  plan::Stage stage;
  const plan::Plan plan = weights(stage);
  const auto complete =
      completion(backward, plan, stage, {5 * kBucket, kBucket, 5});
  ASSERT_EQ(complete.size(), 5u);
  // The second weight is never touched, the third has two buckets.
  const int64_t buckets[] = {1, 2, 3, 0, 4}, calls[] = {0, 2, 2, 4, 5};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(complete[i].bucket, buckets[i]);
    EXPECT_EQ(complete[i].calls, calls[i]);
  }
}

TEST(GradientTrace, ABucketWaitsForAllOfItsWeights) {
  plan::Stage stage;
  const plan::Plan plan = weights(stage);
  const auto complete =
      completion(backward, plan, stage, {5 * kBucket, 2 * kBucket, 3});
  const int64_t buckets[] = {1, 0, 2}, calls[] = {2, 4, 5};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(complete[i].bucket, buckets[i]);
    EXPECT_EQ(complete[i].calls, calls[i]);
  }
}

/// What is no weight's may be anybody's.
TEST(GradientTrace, WaitsForAddressesBetween) {
  plan::Stage stage;
  plan::Plan plan = weights(stage);
  plan.weights[3].shape = {1};
  auto task = [](PipecFrame *frame) {
    backward(frame);
    char *between[] = {gradient(frame, 1024 + 64)};
    frame->device->launch(frame->device, 2, 1, 32, 0, between, 1);
  };
  for (const CompleteBucket &bucket :
       completion(task, plan, stage, {5 * kBucket, kBucket, 5}))
    EXPECT_EQ(bucket.calls, 6);
}

} // namespace
} // namespace pipec
