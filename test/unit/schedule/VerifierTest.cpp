// Every rule finds its planted fault and names the place.
#include "compiler/schedule/Verifier.h"
#include "compiler/schedule/Csv.h"
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Replay.h"
#include "support/Failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::schedule;
using testing::HasSubstr;

namespace {

Schedule oneFOneB(int devices, int microbatches) {
  ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  return generate("1f1b", request);
}

void expectFirst(const Schedule &schedule, Rule rule, const char *message,
                 const VerifyOptions &options = {}) {
  auto found = verify(schedule, options);
  ASSERT_FALSE(found.empty());
  EXPECT_STREQ(toString(found[0].rule), toString(rule)) << found[0].message;
  EXPECT_THAT(found[0].message, HasSubstr(message));
}

TEST(Verifier, AcceptsEverySchedule) {
  for (const ScheduleRow &row : schedules()) {
    ScheduleRequest request;
    request.devices = 4;
    request.microbatches = 8;
    EXPECT_TRUE(verify(generate(row.name, request)).empty()) << row.name;
  }
}

TEST(Verifier, Shape) {
  Schedule schedule = oneFOneB(2, 2);
  schedule.order[0][1].microbatch = 7;
  expectFirst(schedule, Rule::Shape, "device 0: 0F7 is outside");
  schedule = oneFOneB(2, 2);
  schedule.placement[1] = {5};
  expectFirst(schedule, Rule::Shape, "stage 1 needs distinct devices");
  schedule = oneFOneB(2, 3);
  schedule.slices = 2;
  expectFirst(schedule, Rule::Shape, "3 pieces are no multiple of 2");
}

TEST(Verifier, MissingTasks) {
  Schedule schedule = oneFOneB(2, 4);
  schedule.order[1].pop_back();
  expectFirst(schedule, Rule::Missing, "device 1: 1B3 is missing");
  schedule.order[1].push_back({Kind::I, 1, 3});
  expectFirst(schedule, Rule::Missing, "device 1: 1W3 is missing");
  schedule.order[1].back().kind = Kind::W;
  expectFirst(schedule, Rule::Missing, "device 1: 1I3 is missing");
}

TEST(Verifier, DuplicateTasks) {
  Schedule schedule = oneFOneB(2, 2);
  schedule.order[0].push_back({Kind::F, 0, 1});
  expectFirst(schedule, Rule::Duplicate, "device 0: 0F1 is there twice");
  schedule.order[0].back() = {Kind::W, 0, 1};
  expectFirst(schedule, Rule::Duplicate, "0W1 is already part of 0B1");
}

TEST(Verifier, WrongDevice) {
  Schedule schedule = oneFOneB(2, 2);
  schedule.order[0].push_back(schedule.order[1].back());
  schedule.order[1].pop_back();
  expectFirst(schedule, Rule::Device, "device 0: 1B1 belongs on device 1");
  // A replica must not take another's microbatch.
  ScheduleRequest request;
  request.devices = 3;
  request.microbatches = 4;
  request.replicas = {2, 1};
  schedule = generate("1f1b", request);
  std::swap(schedule.order[0], schedule.order[1]);
  expectFirst(schedule, Rule::Device, "belongs on device 1");
}

TEST(Verifier, OrderWithinADevice) {
  Schedule schedule = oneFOneB(2, 2);
  std::swap(schedule.order[1][0], schedule.order[1][1]);
  expectFirst(schedule, Rule::Dependency, "device 1: 1B0 stands before 1F0");
}

TEST(Verifier, DeadlockNamesTheCircle) {
  Schedule schedule = oneFOneB(2, 2);
  std::swap(schedule.order[0][1], schedule.order[0][2]);
  std::swap(schedule.order[1][0], schedule.order[1][2]);
  std::swap(schedule.order[1][1], schedule.order[1][3]);
  expectFirst(schedule, Rule::Deadlock,
              "device 0 waits at 0B0, which waits for: device 1 waits at 1F1");
}

TEST(Verifier, BoundedBuffers) {
  // 1F1B's neighbours send to each other at the same time: a rendezvous can
  // not work, one message of room can.
  Schedule schedule = oneFOneB(4, 8);
  EXPECT_EQ(buffersNeeded(schedule), 1);
  VerifyOptions options;
  options.buffers = 0;
  expectFirst(schedule, Rule::Buffers, "waits to send the result of", options);
  options.buffers = 1;
  EXPECT_TRUE(verify(schedule, options).empty());
  // A consumer that wants the last message first needs room for all of them.
  Schedule late = readCsv("0F0,0F1,0F2,0B2,0B0,0B1\n1F2,1B2,1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(buffersNeeded(late), 3);
  options.buffers = 2;
  expectFirst(late, Rule::Buffers, "with 2 buffers", options);
}

TEST(Verifier, MessageOrder) {
  Schedule late = readCsv("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n");
  EXPECT_TRUE(verify(late).empty());
  VerifyOptions options;
  options.messages = MessageOrder::PerPair;
  expectFirst(late, Rule::Fifo,
              "device 1: 1F1 takes the result of stage 0 microbatch 1 but "
              "device 0 sends that of 0F0 first",
              options);
  EXPECT_TRUE(verify(oneFOneB(4, 8), options).empty());
}

TEST(Verifier, MessageOrderOfAnEdge) {
  // A V sends activations and gradients the same way; over one boundary and
  // direction they keep their order, and that is what a runtime needs.
  VerifyOptions options;
  options.messages = MessageOrder::PerEdge;
  for (const ScheduleRow &row : schedules()) {
    ScheduleRequest request;
    request.devices = 4;
    request.microbatches = 8;
    if (row.name != std::string("seq1f1b"))
      EXPECT_TRUE(verify(generate(row.name, request), options).empty())
          << row.name;
  }
  Schedule late = readCsv("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n");
  expectFirst(late, Rule::Fifo, "device 1: 1F1 takes the result", options);
}

TEST(Verifier, Memory) {
  ScheduleRequest request;
  request.devices = 2;
  request.microbatches = 4;
  request.costs.limit = {2, 1};
  Schedule schedule = generate("1f1b", request);
  Costs costs = costsFor(schedule, request);
  VerifyOptions options;
  options.costs = &costs;
  EXPECT_TRUE(verify(schedule, options).empty());
  costs.limit = {1.5, 1};
  expectFirst(schedule, Rule::Memory,
              "device 0: 0F1 brings the device to 2, its limit is 1.5",
              options);
}

TEST(Verifier, SlicesKeepTheirOrder) {
  // Two pieces of one microbatch: forwards ascend, backwards descend.
  Schedule schedule = readCsv("0F0,0F1,0B1,0B0\n");
  schedule.slices = 2;
  EXPECT_TRUE(verify(schedule).empty());
  std::swap(schedule.order[0][2], schedule.order[0][3]);
  expectFirst(schedule, Rule::Dependency, "0B0 stands before 0B1");
  schedule = readCsv("0F1,0F0,0B1,0B0\n");
  schedule.slices = 2;
  expectFirst(schedule, Rule::Dependency, "0F1 stands before 0F0");
}

TEST(Schedule, PiecesAsStages) {
  ScheduleRequest request;
  request.devices = 2;
  request.microbatches = 2;
  request.slices = 2;
  Schedule unrolled = unrollSlices(generate("seq1f1b", request));
  EXPECT_EQ(unrolled.stages, 4);
  EXPECT_EQ(unrolled.microbatches, 2);
  EXPECT_EQ(unrolled.slices, 1);
  EXPECT_EQ(unrolled.placement, loopedPlacement(2, 2));
  EXPECT_EQ(writeCsv(unrolled), "0F0,2F0,0F1,2B0,2F1,0B0,2B1,0B1\n"
                                "1F0,3F0,3B0,1F1,1B0,3F1,3B1,1B1\n");
  // Whole sequences stay as they are.
  ScheduleRequest ofWholes = request;
  ofWholes.slices = 0;
  Schedule whole = generate("1f1b", ofWholes);
  EXPECT_EQ(unrollSlices(whole).order, whole.order);
  // One piece is 1F1B.
  request.slices = 1;
  EXPECT_EQ(generate("seq1f1b", request).order, whole.order);
}

TEST(Verifier, ThrowsTheFirstViolation) {
  Schedule schedule = oneFOneB(2, 2);
  schedule.order[1].pop_back();
  try {
    verifyOrThrow(schedule);
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::BadPlan);
    EXPECT_STREQ(failure.what(),
                 "1f1b: missing task: device 1: 1B1 is missing");
  }
}

} // namespace
