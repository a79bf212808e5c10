//===- KnownTest.cpp ------------------------------------------------------===//
#include "compiler/schedule/generators/Build.h"
#include "compiler/schedule/search/Greedy.h"
#include "compiler/schedule/search/Justify.h"
#include "compiler/schedule/search/Search.h"

#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::schedule;
using namespace pipec::schedule::search;

static ScheduleRequest requestOf(Metric metric, double limit) {
  ScheduleRequest request;
  request.devices = 4;
  request.microbatches = 8;
  request.metric = metric;
  request.costs.forward = {18, 17, 19, 18};
  request.costs.backwardInput.assign(4, 17);
  request.costs.backwardWeight.assign(4, 9);
  request.costs.comm = {1};
  request.costs.limit.assign(4, limit);
  return request;
}

TEST(Known, OrdersAreMadeOncePerPlacementNameAndLimit) {
  Known known;
  int made = 0;
  auto ask = [&](int chunks, double limit, const char *name, bool limited) {
    const Problem p = makeProblem(requestOf(Metric::Makespan, limit),
                                  loopedPlacement(4, chunks));
    return known.order(p, name, limited, [&] {
      ++made;
      return greedy(p, {});
    });
  };
  const Order first = ask(1, 3, "a", true);
  EXPECT_EQ(ask(1, 3, "a", true), first);
  EXPECT_EQ(made, 1);
  EXPECT_NE(ask(1, 2, "a", true), first);
  EXPECT_EQ(made, 2);
  ask(2, 3, "a", true);
  ask(1, 3, "b", true);
  EXPECT_EQ(made, 4);
  ask(1, 3, "c", false);
  ask(1, 2, "c", false); // limits make no difference
  EXPECT_EQ(made, 5);
}

TEST(Known, ImprovementsAreThoseOfTheSameProblem) {
  Known known;
  int passes = 0, knownPasses = 0;
  for (bool again : {false, true})
    for (Metric metric : {Metric::Makespan, Metric::Span})
      for (double limit : {2.0, 3.0})
        for (int rounds : {1, 3}) {
          Problem p =
              makeProblem(requestOf(metric, limit), zigzagPlacement(4, 2));
          const Order from = greedy(
              makeProblem(requestOf(metric, 2), zigzagPlacement(4, 2)), {});
          Result result, knownResult;
          const Order to = improve(p, from, rounds, result, &passes);
          EXPECT_EQ(known.improve(p, from, rounds, knownResult, knownPasses),
                    to);
          EXPECT_EQ(knownResult.makespan, result.makespan) << again;
          EXPECT_EQ(knownResult.span, result.span) << again;
          EXPECT_EQ(knownPasses, passes) << again;
        }
}

TEST(Known, ChangesNoSearch) {
  Known known;
  for (Metric metric : {Metric::Makespan, Metric::Span})
    for (double limit : {2.0, 3.0}) {
      const ScheduleRequest request = requestOf(metric, limit);
      SearchOptions options{{{Layout::Zigzag, 2}, {Layout::Linear, 1}}};
      const auto alone = findBest(request, options);
      options.known = &known;
      const auto shared = findBest(request, options);
      ASSERT_TRUE(alone && shared);
      EXPECT_EQ(shared->schedule.order, alone->schedule.order);
    }
}
