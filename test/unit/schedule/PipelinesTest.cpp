//===- PipelinesTest.cpp - several pipelines of one order -----------------===//
#include "compiler/schedule/Pipelines.h"
#include "compiler/schedule/Verifier.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

using namespace pipec;
using namespace pipec::schedule;

namespace {

Schedule one(const ScheduleRow &row, int devices, int microbatches) {
  ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  return generate(row.name, request);
}

/// Copies next to each other: device d of copy q is d * copies + q.
std::vector<std::vector<int>> beside(const Schedule &of, int copies) {
  std::vector<std::vector<int>> placement;
  for (const std::vector<int> &on : of.placement) {
    placement.emplace_back();
    for (int q = 0; q < copies; ++q)
      placement.back().push_back(on.front() * copies + q);
  }
  return placement;
}

} // namespace

/// Each copy runs the order of one pipeline on every copies-th microbatch, also
/// where these do not come out even, and keeps no more than that pipeline.
TEST(Pipelines, EachRunsTheOrderOfOne) {
  int checked = 0;
  for (const ScheduleRow &row : schedules()) {
    if (!mayRepeat(row))
      continue;
    for (int devices : {2, 4})
      for (int copies : {2, 3})
        for (int microbatches : {8 * copies, 8 * copies - 1}) {
          SCOPED_TRACE(row.name);
          const Schedule single = one(row, devices, 8);
          const Schedule all =
              repeated(single, microbatches, beside(single, copies));
          EXPECT_TRUE(verify(all).empty());
          EXPECT_EQ(all.devices(), devices * copies);
          for (int d = 0; d < all.devices(); ++d) {
            std::vector<Action> own = single.order[d / copies];
            for (Action &action : own)
              action.microbatch = action.microbatch * copies + d % copies;
            std::erase_if(own, [&](const Action &action) {
              return action.microbatch >= microbatches;
            });
            EXPECT_EQ(all.order[d], own);
            for (int stage : all.stagesOf(d))
              EXPECT_LE(inFlight(all, d, stage),
                        inFlight(single, d / copies, stage));
          }
          ++checked;
        }
  }
  EXPECT_GE(checked, 8 * 8);
}

/// What takes as many replicas of each stage by itself comes to the same.
TEST(Pipelines, AreEqualReplicas) {
  for (const char *name : {"naive", "gpipe", "1f1b"}) {
    ScheduleRequest request;
    request.devices = 6;
    request.replicas = {2, 2, 2};
    request.microbatches = 7;
    const Schedule own = generate(name, request);
    const Schedule single = one(getSchedule(name), 3, 4);
    const Schedule all = repeated(single, 7, beside(single, 2));
    EXPECT_EQ(all.placement, own.placement) << name;
    EXPECT_EQ(all.order, own.order) << name;
  }
}

/// Any devices will do, but for stages of one device that would be apart.
TEST(Pipelines, StandWhereTheyAreTold) {
  const Schedule single = one(getSchedule("interleaved-1f1b"), 2, 4);
  const Schedule inside = repeated(single, 8, {{0, 2}, {1, 3}, {0, 2}, {1, 3}});
  EXPECT_TRUE(verify(inside).empty());
  EXPECT_EQ(inside.deviceOf(1, 5), 3);
  EXPECT_THROW(repeated(single, 8, {{0, 2}, {1, 3}, {0, 3}, {1, 2}}), Failure);
}

/// Several copies already, pieces of microbatches.
TEST(Pipelines, SomeSchedulesHaveOneAlone) {
  for (const char *name : {"dp", "chimera", "gems", "dualpipe", "seq1f1b"})
    EXPECT_FALSE(mayRepeat(getSchedule(name))) << name;
}
