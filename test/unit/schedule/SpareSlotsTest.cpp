//===- SpareSlotsTest.cpp - room for messages that come early -------------===//
#include "compiler/schedule/SpareSlots.h"
#include "compiler/schedule/Generator.h"

#include <gtest/gtest.h>

using namespace pipec::schedule;

namespace {

Schedule orderOf(const char *name, int devices, int microbatches,
                 int chunks = 0) {
  ScheduleRequest request;
  request.devices = devices;
  request.microbatches = microbatches;
  request.chunks = chunks;
  return generate(name, request);
}

/// Two stages do all forwards first, the third one backward after each.
Schedule aheadOfTheLast(int microbatches) {
  Schedule order = orderOf("gpipe", 3, microbatches);
  for (auto &device : order.order)
    device.clear();
  for (int k = 0; k < microbatches; ++k) {
    for (int s : {0, 1})
      order.order[s].push_back({Kind::F, s, k});
    order.order[2].push_back({Kind::F, 2, k});
    order.order[2].push_back({Kind::B, 2, k});
  }
  for (int k = 0; k < microbatches; ++k)
    for (int s : {0, 1})
      order.order[s].push_back({Kind::B, s, k});
  return order;
}

} // namespace

/// One slot beside those of the microbatches in flight is enough for pipelines
/// whose stages take turns.
TEST(SpareSlots, AreNoneInStraightPipelines) {
  for (const char *name : {"naive", "gpipe", "1f1b", "zb-h1", "zb-h2"})
    for (int devices : {1, 2, 5})
      for (int microbatches : {1, 4, 16})
        EXPECT_EQ(spareSlots(orderOf(name, devices, microbatches), {}), 0)
            << name << " " << devices << " " << microbatches;
}

/// What leaves from where it is kept waits for nobody, what leaves from two
/// slots for those who take it.
TEST(SpareSlots, AreThereForStagesThatRunAhead) {
  const Schedule order = aheadOfTheLast(16);
  Sends kept;
  kept.keepsValues = true;
  EXPECT_GT(spareSlots(order, {}), 0);
  EXPECT_EQ(spareSlots(order, kept), 0);
}

/// The straight sends written out are the same.
TEST(SpareSlots, NeighboursAreTheUsualTakers) {
  for (const Schedule &order :
       {aheadOfTheLast(16), orderOf("looped-bfs", 2, 16, 2)}) {
    Sends sends;
    const auto stages = static_cast<size_t>(order.stages);
    sends.values.resize(stages), sends.gradients.resize(stages);
    for (size_t s = 0; s + 1 < stages; ++s) {
      sends.values[s] = {static_cast<int>(s) + 1};
      sends.gradients[s + 1] = {static_cast<int>(s)};
    }
    EXPECT_GT(spareSlots(order, sends), 0);
    EXPECT_EQ(spareSlots(order, sends), spareSlots(order, {}));
  }
}

/// Who sends to the last stage as well waits until that has room.
TEST(SpareSlots, AreThereForMessagesThatSkipStages) {
  const Schedule order = aheadOfTheLast(16);
  Sends sends;
  sends.values.resize(3);
  sends.gradients = {{}, {0}, {1}};
  EXPECT_EQ(spareSlots(order, sends), 0);
  sends.values[0] = {2};
  EXPECT_GT(spareSlots(order, sends), 0);
}
