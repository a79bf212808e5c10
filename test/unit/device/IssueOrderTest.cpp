//===- IssueOrderTest.cpp - messages that never wait in a circle ----------===//
#include "runtime/program/IssueOrder.h"
#include "runtime/program/Buckets.h"
#include "runtime/program/Memory.h"
#include "test/unit/runtime/TestModel.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

namespace pipec::test {
namespace {

using plan::Issue;
using Order = std::vector<std::vector<Issue>>;

/// The ranks with which a rank of a stream ends a round.
std::vector<int> companyOf(const plan::Plan &plan, int rank) {
  std::vector<std::vector<int>> groups;
  for (const plan::Stage &stage : plan.stages)
    groups.push_back(stage.ranks);
  for (const plan::Tie &tie : plan::ties(plan)) {
    auto &group = groups.emplace_back();
    for (auto [stage, offset] : tie.copies)
      group.push_back(plan.stages[stage].ranks[0]);
  }
  std::set<int> all = {rank};
  for (size_t before = 0; before != all.size();) {
    before = all.size();
    for (const auto &group : groups)
      if (std::any_of(group.begin(), group.end(),
                      [&](int member) { return all.count(member); }))
        all.insert(group.begin(), group.end());
  }
  return {all.begin(), all.end()};
}

/// Everybody does one thing after the other, and a message takes both ends at
/// once, a sum all replicas: the strictest a GPU can be. True when all come to
/// their end.
bool ends(const plan::Plan &plan, const Order &order) {
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
  auto together = [&](const Issue &one, int number) {
    const std::vector<int> ranks = one.kind == Issue::Sum
                                       ? plan.stages[one.stage].ranks
                                       : companyOf(plan, number);
    const bool all = std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
      const Issue *other = at(static_cast<size_t>(rank));
      return other && other->kind == one.kind && other->stage == one.stage &&
             other->bucket == one.bucket;
    });
    for (int rank : ranks)
      next[static_cast<size_t>(rank)] += all;
    return all;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < order.size(); ++rank)
      while (const Issue *issue = at(rank)) {
        if (issue->kind == Issue::Sum || issue->kind == Issue::Round) {
          if (!together(*issue, static_cast<int>(rank)))
            break;
          moved = true;
          continue;
        }
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

/// A stage's backwards come before its sums, on every replica, and what it
/// sends does; every bucket is summed once.
void checkSums(const plan::Plan &plan, const Order &order, int &buckets) {
  for (const plan::Stage &stage : plan.stages)
    for (int rank : stage.ranks) {
      const auto &own = order[static_cast<size_t>(rank)];
      const plan::Sequence sequence = plan::Sequence::step(plan, rank);
      int64_t summed = 0;
      for (const Issue &issue : own) {
        if (issue.kind == Issue::Sum && issue.stage == stage.id) {
          EXPECT_EQ(issue.bucket, summed++);
        }
        const bool backward = issue.kind == Issue::Compute &&
                              sequence.at(issue.task).stage == stage.id &&
                              sequence.at(issue.task).kind != 'F';
        const bool sends = issue.kind == Issue::Send &&
                           plan.edges[issue.edge].from_stage == stage.id &&
                           plan.edges[issue.edge].backward;
        EXPECT_FALSE((backward || sends) && summed > 0);
      }
      EXPECT_EQ(summed, plan::bucketsOf(stage).count);
      buckets += static_cast<int>(summed);
    }
}

TEST(IssueOrder, EndsForEveryProgram) {
  int broken = 0, buckets = 0;
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
    EXPECT_TRUE(ends(plan, order));
    checkSums(plan, order, buckets);
    // Another order of a rank's messages is noticed.
    auto &first = order[0];
    std::reverse(first.begin(), first.end());
    broken += !ends(plan, order);
  }
  EXPECT_GT(broken, 2);
  EXPECT_GT(buckets, 10);
}

/// Gradients of many buckets: one is summed between two tasks, and the first
/// ones before the rank's last task.
TEST(IssueOrder, SumsBetweenTasks) {
  for (const NamedScenario &scenario : scenarios()) {
    if (scenario.setup.stream())
      continue;
    plan::Plan plan = writePlan(scenario.setup, freshFolder("issue-order"));
    int several = 0;
    for (plan::Stage &stage : plan.stages)
      if (stage.ranks.size() > 1 && plan::bucketsOf(stage).count)
        stage.regions["gradients"].bytes = 3 << 20, ++several;
    if (!several)
      continue;
    SCOPED_TRACE(scenario.name);
    const Order order = plan::issueOrder(plan);
    EXPECT_TRUE(ends(plan, order));
    int buckets = 0;
    checkSums(plan, order, buckets);
    EXPECT_GT(buckets, 4 * several);
    for (const auto &own : order)
      for (size_t i = 1; i < own.size(); ++i) {
        if (own[i].kind != Issue::Sum || own[i - 1].kind != Issue::Sum)
          continue;
        // Two in a row: nothing else was to do.
        EXPECT_TRUE(std::all_of(
            own.begin() + static_cast<std::ptrdiff_t>(i), own.end(),
            [](const Issue &later) { return later.kind == Issue::Sum; }));
      }
  }
}

/// PipeDream: a round ends on all replicas, and on all stages that share a
/// weight, before any of them goes on.
TEST(IssueOrder, EndsForEveryStream) {
  int rounds = 0;
  for (const NamedScenario &scenario : scenarios()) {
    if (!scenario.setup.stream())
      continue;
    SCOPED_TRACE(scenario.name);
    const plan::Plan plan =
        writePlan(scenario.setup, freshFolder("issue-order"));
    const int64_t first = 3 * plan::roundLength(plan);
    for (int64_t count : {1, 7, 24}) {
      const Order order = plan::issueOrder(plan, first, first + count);
      EXPECT_TRUE(ends(plan, order));
      for (size_t rank = 0; rank < order.size(); ++rank) {
        const plan::Sequence sequence = plan::Sequence::stream(
            plan, static_cast<int>(rank), first, first + count);
        const bool alone = companyOf(plan, static_cast<int>(rank)).size() == 1;
        int64_t task = 0, backwards = 0, ended = 0;
        for (const Issue &issue : order[rank]) {
          ended += issue.kind == Issue::Round;
          if (issue.kind != Issue::Compute)
            continue;
          EXPECT_EQ(issue.task, task);
          EXPECT_EQ(ended, alone ? 0 : backwards);
          backwards += sequence.at(task++).kind == 'B';
        }
        EXPECT_EQ(task, sequence.size());
        EXPECT_GE(ended, alone ? 0 : backwards);
        rounds += static_cast<int>(ended);
      }
    }
  }
  EXPECT_GT(rounds, 20);
}

} // namespace
} // namespace pipec::test
