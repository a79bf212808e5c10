#include "compiler/plan/EqualOrders.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

using namespace pipec;

namespace {

/// One that keeps these sizes, to be told from others of the same name.
schedule::ScheduleRequest sizes(int devices, int microbatches) {
  schedule::ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  return request;
}

bool same(const schedule::Schedule &a, const schedule::Schedule &b) {
  return a.name == b.name && a.stages == b.stages &&
         a.placement == b.placement && a.order == b.order && a.pairs == b.pairs;
}

} // namespace

/// What is kept is what would be generated, of every name and size, however
/// often it is asked for.
TEST(EqualOrders, AreThoseThatAreGenerated) {
  for (int round = 0; round < 2; ++round)
    for (const char *name : {"1f1b", "1f1b-v", "v-half", "zb-h1", "gpipe"})
      for (int devices : {2, 4})
        for (int microbatches : {4, 7}) {
          const auto size = sizes(devices, microbatches);
          EXPECT_TRUE(same(plan::equalOrder(name, size),
                           schedule::generate(name, size)))
              << name << " " << devices << " " << microbatches;
        }
}

TEST(EqualOrders, ReplicasAndChunksAreSizesToo) {
  schedule::ScheduleRequest size = sizes(4, 8);
  const schedule::Schedule straight = plan::equalOrder("1f1b", size);
  size.replicas = {2, 1, 1};
  EXPECT_TRUE(
      same(plan::equalOrder("1f1b", size), schedule::generate("1f1b", size)));
  EXPECT_FALSE(same(plan::equalOrder("1f1b", size), straight));
  size = sizes(4, 8);
  size.chunks = 3;
  EXPECT_TRUE(same(plan::equalOrder("interleaved-1f1b", size),
                   schedule::generate("interleaved-1f1b", size)));
}

TEST(EqualOrders, WhatCannotBeIsRefusedEachTime) {
  for (int round = 0; round < 2; ++round)
    EXPECT_THROW(plan::equalOrder("chimera", sizes(3, 4)), Failure);
}
