//===- IssueOrderTest.cpp - messages that never wait in a circle ----------===//
#include "runtime/program/IssueOrder.h"
#include "test/unit/runtime/TestModel.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace pipec::test {
namespace {

using plan::Issue;
using Order = std::vector<std::vector<Issue>>;

/// Everybody does one thing after the other, and a message takes both ends at
/// once: the strictest a GPU can be. True when all come to their end.
bool ends(const Order &order) {
  std::vector<size_t> next(order.size());
  auto at = [&](size_t rank) -> const Issue * {
    return next[rank] < order[rank].size() ? &order[rank][next[rank]] : nullptr;
  };
  auto meets = [&](const Issue &one, size_t rank) {
    const Issue *other = at(static_cast<size_t>(one.peer));
    return other && other->peer == static_cast<int>(rank) &&
           other->edge == one.edge && other->microbatch == one.microbatch &&
           other->kind ==
               (one.kind == Issue::Send ? Issue::Receive : Issue::Send);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < order.size(); ++rank)
      while (const Issue *issue = at(rank)) {
        const bool message =
            issue->kind == Issue::Send || issue->kind == Issue::Receive;
        if (message && !meets(*issue, rank))
          break;
        if (message)
          ++next[static_cast<size_t>(issue->peer)];
        ++next[rank];
        moved = true;
      }
  }
  for (size_t rank = 0; rank < order.size(); ++rank)
    if (at(rank))
      return false;
  return true;
}

TEST(IssueOrder, EndsForEveryProgram) {
  int broken = 0;
  for (const NamedScenario &scenario : scenarios()) {
    if (scenario.setup.stream())
      continue;
    SCOPED_TRACE(scenario.name);
    const plan::Plan plan =
        writePlan(scenario.setup, freshFolder("issue-order"));
    Order order = plan::issueOrder(plan);
    for (size_t rank = 0; rank < order.size(); ++rank) {
      int64_t task = 0;
      for (const Issue &issue : order[rank])
        if (issue.kind == Issue::Compute) {
          EXPECT_EQ(issue.task, task++);
        }
      EXPECT_EQ(task,
                plan::Sequence::step(plan, static_cast<int>(rank)).size());
    }
    EXPECT_TRUE(ends(order));
    // Another order of a rank's messages is noticed.
    auto &first = order[0];
    std::reverse(first.begin(), first.end());
    broken += !ends(order);
  }
  EXPECT_GT(broken, 2);
}

} // namespace
} // namespace pipec::test
