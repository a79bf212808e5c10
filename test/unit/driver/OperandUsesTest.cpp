#include "compiler/driver/OperandUses.h"

#include <gtest/gtest.h>

using namespace pipec;

namespace {

using Kind = fusion::Buffer::Kind;

/// Units that touch these buffers, in their order.
fusion::TaskPlan taskOf(std::vector<std::pair<Kind, int64_t>> buffers,
                        std::vector<std::vector<int>> touches) {
  fusion::TaskPlan task;
  for (auto [kind, bytes] : buffers) {
    task.buffers.emplace_back();
    task.buffers.back().kind = kind, task.buffers.back().bytes = bytes;
  }
  for (size_t u = 0; u < touches.size(); ++u) {
    task.units.emplace_back();
    task.units.back().touches.assign(touches[u].begin(), touches[u].end());
    task.order.push_back(static_cast<int>(u));
  }
  task.workspace = 500;
  return task;
}

} // namespace

/// x W1 -> h, h h -> g, g W1 -> y: g is where it was just written, W1 as far
/// away as h and g are large, y in a workspace of 500 bytes.
TEST(OperandUses, AreAsFarAwayAsWhatWasTouchedSince) {
  const auto uses = operandUses(taskOf({{Kind::Region, 10},
                                        {Kind::Region, 400},
                                        {Kind::Arena, 30},
                                        {Kind::Arena, 70},
                                        {Kind::Arena, 5}},
                                       {{0, 1, 2}, {2, 3, 2}, {3, 1, 4}}));
  ASSERT_EQ(uses.size(), 3u);
  ASSERT_EQ(uses[0].size(), 3u);
  EXPECT_LT(uses[0][0].distance, 0); // before this task
  EXPECT_LT(uses[0][1].distance, 0);
  EXPECT_EQ(uses[0][1].bytes, 400);
  EXPECT_EQ(uses[0][2].distance, 500);
  ASSERT_EQ(uses[1].size(), 2u); // each operand counts once
  EXPECT_EQ(uses[1][0].distance, 0);
  EXPECT_EQ(uses[2][0].distance, 30 + 70); // the weights, then
  EXPECT_EQ(uses[2][0].bytes, 400);
  EXPECT_EQ(uses[2][1].distance, 400); // behind them
  EXPECT_EQ(uses[2][2].distance, 500);
}

/// Units are looked at in the order in which they run, and keep their numbers.
TEST(OperandUses, FollowTheOrderOfTheTask) {
  fusion::TaskPlan task =
      taskOf({{Kind::Region, 10}, {Kind::Region, 20}}, {{0}, {1}, {0}});
  task.order = {2, 1, 0};
  const auto uses = operandUses(task);
  EXPECT_LT(uses[2][0].distance, 0);
  EXPECT_EQ(uses[0][0].distance, 20);
}
