//===- SlotsTest.cpp - no two microbatches share a buffer -----------------===//
#include "compiler/driver/Slots.h"
#include "compiler/plan/StepModel.h"
#include "compiler/schedule/Generator.h"

#include "gtest/gtest.h"

#include <map>
#include <tuple>

using namespace pipec;
using schedule::Action;
using schedule::Kind;

namespace {

class Slots
    : public testing::TestWithParam<std::tuple<const char *, int, int>> {};

/// Follows an order and checks that a held slot is never handed out again.
TEST_P(Slots, AreNotSharedWhileHeld) {
  auto [name, devices, microbatches] = GetParam();
  schedule::ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  schedule::Schedule s = schedule::generate(name, request);
  for (int device = 0; device < s.devices(); ++device)
    for (int stage : s.stagesOf(device)) {
      const auto &order = s.order[device];
      bool split = std::any_of(order.begin(), order.end(), [](const Action &a) {
        return a.kind == Kind::W;
      });
      SlotPlan plan = assignSlots(order, stage, {true, true, split});
      std::map<PipecRegion, std::map<int, int>>
          owner; // region, slot, microbatch
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i].stage != stage) {
          EXPECT_TRUE(plan.used[i].empty());
          continue;
        }
        int k = order[i].microbatch;
        for (PipecRegion region : {PIPEC_IN, PIPEC_STASH}) {
          int slot = plan.used[i].at(region);
          ASSERT_GE(slot, 0);
          ASSERT_LT(slot, plan.counts.at(region));
          auto [it, isNew] = owner[region].insert({slot, k});
          EXPECT_EQ(it->second, k) << region << " of " << toString(order[i]);
          EXPECT_EQ(isNew, order[i].kind == Kind::F);
          if (order[i].kind == (split ? Kind::W : Kind::B))
            owner[region].erase(it);
        }
      }
      EXPECT_TRUE(owner[PIPEC_IN].empty()) << "every microbatch ends";
    }
}

/// The planner counts the slots that a plan will have, before there is one.
TEST_P(Slots, AreThoseOfThePlannersEstimate) {
  auto [name, devices, microbatches] = GetParam();
  plan::PlanRequest asked;
  asked.strategy = plan::strategyFacts(name);
  asked.microbatches = microbatches;
  schedule::ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  schedule::Schedule s = schedule::generate(name, request);
  ASSERT_EQ(s.slices, 1);
  int fromHere = s.stages;
  for (int stage = 0; stage < s.stages; ++stage, --fromHere) {
    const plan::Keeps keeps =
        keepsAt(asked, {stage, s.stages, 1, fromHere, microbatches});
    std::map<PipecRegion, int> most;
    for (int device : s.placement[stage]) {
      const auto &order = s.order[device];
      bool split = std::any_of(order.begin(), order.end(), [](const Action &a) {
        return a.kind == Kind::W;
      });
      const SlotPlan plan =
          assignSlots(order, stage, {stage > 0, stage + 1 < s.stages, split});
      for (auto [region, name] : plan::kSlotted)
        if (plan.counts.has(region))
          most[region] = std::max(most[region], plan.counts.at(region));
    }
    EXPECT_EQ(keeps.received, most[PIPEC_IN]) << stage;
    EXPECT_EQ(keeps.inFlight, most[PIPEC_STASH]) << stage;
    EXPECT_EQ(keeps.receivedBack, most[PIPEC_GRAD_IN]) << stage;
    EXPECT_EQ(keeps.betweenHalves, most[PIPEC_WSTASH]) << stage;
    EXPECT_EQ(keeps.sent, most[PIPEC_OUT]) << stage;
    EXPECT_EQ(keeps.sent, most[PIPEC_GRAD_OUT]) << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Slots,
    testing::Combine(testing::Values("gpipe", "1f1b", "naive"),
                     testing::Values(1, 2, 4), testing::Values(1, 3, 8)));

TEST(Slots, OneMoreThanInFlightWhereMessagesArrive) {
  schedule::ScheduleRequest request;
  request.devices = 3;
  request.microbatches = 8;
  schedule::Schedule s = schedule::generate("1f1b", request);
  SlotPlan middle = assignSlots(s.order[1], 1, {true, true, false});
  EXPECT_EQ(middle.counts.at(PIPEC_STASH), 2);
  EXPECT_EQ(middle.counts.at(PIPEC_IN), 3);
  EXPECT_EQ(middle.counts.at(PIPEC_GRAD_IN), 2);
  SlotPlan first = assignSlots(s.order[0], 0, {false, true, false});
  EXPECT_EQ(first.counts.at(PIPEC_IN), 3)
      << "model inputs are read at the forward";
}

TEST(Slots, SpareOnesForMessagesAlone) {
  schedule::ScheduleRequest request;
  request.devices = 3;
  request.microbatches = 8;
  schedule::Schedule s = schedule::generate("1f1b", request);
  SlotPlan middle = assignSlots(s.order[1], 1, {true, true, false, 4});
  EXPECT_EQ(middle.counts.at(PIPEC_STASH), 2);
  EXPECT_EQ(middle.counts.at(PIPEC_IN), 7);
  EXPECT_EQ(middle.counts.at(PIPEC_GRAD_IN), 6);
  middle = assignSlots(s.order[1], 1, {true, true, false, 100});
  EXPECT_EQ(middle.counts.at(PIPEC_GRAD_IN), 8) << "no more than microbatches";
}

TEST(Slots, NeverMoreThanMicrobatches) {
  schedule::ScheduleRequest request;
  request.devices = 2;
  request.microbatches = 1;
  schedule::Schedule s = schedule::generate("1f1b", request);
  const plan::RegionSlots counts =
      assignSlots(s.order[1], 1, {true, true, false}).counts;
  for (auto [region, name] : plan::kSlotted)
    EXPECT_EQ(counts.has(region), region != PIPEC_STATS) << name;
  for (PipecRegion region : {PIPEC_IN, PIPEC_STASH, PIPEC_OUT})
    EXPECT_EQ(counts.at(region), 1);
}

} // namespace
