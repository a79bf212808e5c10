//===- SpareSlotsTest.cpp - room for messages that come early -------------===//
#include "compiler/schedule/SpareSlots.h"
#include "compiler/schedule/Generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

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

using Message = std::tuple<bool, int, int>; // forward, stage, microbatch

/// Whether a rank for each stage, in which all messages go to neighbours from
/// one of two slots, ends: every rank looks again and again at what it may do.
bool ends(const Schedule &order, int spare) {
  const int stages = order.stages;
  std::vector<size_t> next(order.order.size()), posting = next;
  std::vector<std::map<bool, int>> room(order.order.size());
  std::vector<std::map<bool, std::vector<int>>> sent(order.order.size());
  std::set<Message> taken, made;
  for (int s = 0; s < stages; ++s)
    for (bool forward : {true, false}) {
      const int kept = forward ? inFlight(order, s, s) : 1;
      const bool comes = forward ? s > 0 : s + 1 < stages;
      room[s][forward] =
          std::clamp(kept + comes + spare, 1, std::max(1, order.microbatches));
    }
  for (bool moves = true; moves;) {
    moves = false;
    for (int s = 0; s < stages; ++s) {
      const auto &tasks = order.order[s];
      if (posting[s] < tasks.size()) {
        const bool forward = tasks[posting[s]].kind == Kind::F;
        if ((!forward && s + 1 == stages) || room[s][forward]-- > 0) {
          taken.insert({forward, s, tasks[posting[s]++].microbatch});
          moves = true;
        } else {
          room[s][forward] = 0;
        }
      }
      if (next[s] >= posting[s])
        continue;
      const auto [kind, stage, k] = tasks[next[s]];
      const bool forward = kind == Kind::F;
      const int from = forward ? s - 1 : s + 1, to = forward ? s + 1 : s - 1;
      if (from >= 0 && from < stages && !made.contains({forward, from, k}))
        continue;
      std::vector<int> &before = sent[s][forward];
      if (to >= 0 && to < stages) {
        const size_t slots = std::min(2, order.microbatches);
        if (before.size() >= slots &&
            !taken.contains({forward, to, before[before.size() - slots]}))
          continue;
        before.push_back(k);
      }
      made.insert({forward, s, k});
      if (!forward)
        ++room[s][true], ++room[s][false];
      ++next[s];
      moves = true;
    }
  }
  for (int s = 0; s < stages; ++s)
    if (next[s] < order.order[s].size())
      return false;
  return true;
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

/// A plain executor ends with them and not with half of them.
TEST(SpareSlots, AreAsManyAsAnExecutorNeeds) {
  std::vector<Schedule> orders;
  for (int microbatches : {1, 3, 4, 8, 16, 33})
    orders.push_back(aheadOfTheLast(microbatches));
  for (const char *name : {"gpipe", "1f1b"})
    for (int devices : {2, 3, 5})
      orders.push_back(orderOf(name, devices, 8));
  for (const Schedule &order : orders) {
    int spare = 0;
    while (spare < order.microbatches && !ends(order, spare))
      spare = std::max(1, 2 * spare);
    EXPECT_EQ(spareSlots(order, {}), spare)
        << order.name << " " << order.devices() << " " << order.microbatches;
  }
}
