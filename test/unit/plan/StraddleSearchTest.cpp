#include "compiler/plan/published/StraddleSearch.h"
#include "BruteForce.h"
#include "PipeDreamBrute.h"
#include "RandomGraphs.h"
#include "compiler/plan/published/PublishedVerifier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

using namespace pipec;
using namespace pipec::published;
using namespace pipec::plan::test;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

} // namespace

TEST(StraddleSearch, EqualsBruteForce) {
  Random random(22);
  int below = 0;
  for (int round = 0; round < rounds(500); ++round) {
    const bool isDeep = round % 3 == 2;
    PipeDreamProfile profile =
        randomProfile(random, random.between(2, isDeep ? 5 : 6));
    std::vector<PipeDreamLevel> levels{
        {random.between(2, 3), random.real(1e8, 1e9)},
        {2, random.real(1e7, 1e8)}};
    if (isDeep)
      levels = randomLevels(random, 3);
    CutStates states = cutStates(profile, 1000);
    PipeDreamPlan plan = searchStraddling(states, levels, inf);
    double want = straddlingBrute(states, levels);
    ASSERT_NEAR(plan.seconds, want, 1e-9 * want) << round;
    double own = verifyPipeDream(profile, states, levels, plan, true);
    EXPECT_NEAR(own, want, 1e-9 * want) << round;
    double limit = states.kept.back() * random.real(0.3, 1);
    PipeDreamPlan fitting = searchStraddling(states, levels, inf, limit);
    double least = straddlingBrute(states, levels, 0, limit);
    if (std::isfinite(least))
      EXPECT_NEAR(fitting.seconds, least, 1e-9 * least) << round;
    else
      EXPECT_FALSE(std::isfinite(fitting.seconds)) << round;
    PipeDreamPlan published = searchPipeDream(states, levels);
    double bounded =
        searchStraddling(states, levels, published.seconds).seconds;
    if (want < published.seconds * (1 - 1e-9)) {
      EXPECT_NEAR(bounded, want, 1e-9 * want) << round;
      ++below;
    } else {
      EXPECT_GE(bounded, want * (1 - 1e-9)) << round;
    }
  }
  EXPECT_GT(below, 20);
}

/// A spent effort is told, and what was found until then still fits.
TEST(StraddleSearch, SpentEffortIsTold) {
  Random random(25);
  int slower = 0;
  for (int round = 0; round < rounds(300); ++round) {
    PipeDreamProfile profile = randomProfile(random, random.between(4, 8));
    const std::vector<PipeDreamLevel> levels{
        {random.between(2, 4), random.real(1e8, 1e9)},
        {2, random.real(1e7, 1e8)}};
    CutStates states = cutStates(profile, 1000, true);
    const double limit = states.kept.back() * random.real(0.4, 1);
    SearchEffort enough, little{1};
    PipeDreamPlan best = searchStraddling(states, levels, inf, limit, &enough);
    PipeDreamPlan plan = searchStraddling(states, levels, inf, limit, &little);
    EXPECT_TRUE(enough.isEvery);
    if (little.isEvery && std::isfinite(best.seconds))
      EXPECT_NEAR(plan.seconds, best.seconds, 1e-9 * best.seconds);
    if (little.isEvery || plan.stages.empty())
      continue;
    verifyPipeDream(profile, states, levels, plan, true, limit);
    ASSERT_GE(plan.seconds, best.seconds * (1 - 1e-9)) << round;
    slower += plan.seconds > best.seconds * (1 + 1e-9);
  }
  EXPECT_GT(slower, 5);
}

/// What the busiest server's card carries, by walking over the minibatches.
TEST(StraddleSearch, BordersCarryWhatMinibatchesMove) {
  Random random(23);
  for (int round = 0; round < rounds(2000); ++round) {
    const int each = random.between(1, 6), a = random.between(1, 14);
    const int b = random.between(1, 14), border = a + random.between(0, 9);
    std::map<int, int> card;
    for (int k = 0; k < a * b; ++k) {
      const int from = (border - a + k % a) / each,
                to = (border + k % b) / each;
      if (from != to)
        ++card[from], ++card[to];
    }
    int busiest = 0;
    for (auto [server, minibatches] : card)
      busiest = std::max(busiest, minibatches);
    // Links inside servers take no time here.
    const PipeDreamLevel inner{each, 1e30}, outer{10, 1e3};
    ASSERT_NEAR(straddlingBoundary({inner, outer}, border, a, b, 500),
                1.0 * busiest / (a * b), 1e-12)
        << round;
  }
}

/// On whole servers the straddling price is PipeDream's two-level replication.
TEST(StraddleSearch, PricesWholeServersAsPublished) {
  PipeDreamProfile profile =
      parsePipeDreamProfile(profileLine("a", "Linear", 90, 1e6, 5e6), "one");
  PipeDreamLevel inner{4, 1e9}, outer{3, 2e8};
  CutStates states = cutStates(profile, 10);
  EXPECT_NEAR(straddlingStage({inner, outer}, 0, 12, 0.09, 5e6),
              dataParallelSeconds(states, {inner, outer}), 1e-15);
}

/// More cuts than the limit: prefixes of linear orders, still valid plans.
TEST(CutStates, ManyCutsFallBackToLinearOrders) {
  std::string text = profileLine("s", "Linear", 1, 1e6, 0), edges;
  for (int b = 0; b < 12; ++b)
    for (int l = 0; l < 4; ++l) {
      std::string id = "b" + std::to_string(b) + "_" + std::to_string(l);
      text += profileLine(id, "Conv", 1 + b * 0.3 + l,
                          1e5 * (1 + (b * 7 + l) % 5), 1e4);
      edges +=
          "\t" +
          (l ? "b" + std::to_string(b) + "_" + std::to_string(l - 1) : "s") +
          " -- " + id + "\n";
    }
  PipeDreamProfile profile = parsePipeDreamProfile(text + edges, "wide");
  CutStates states = cutStates(profile, 500);
  EXPECT_FALSE(states.complete);
  EXPECT_LE(states.size(), 500u);
  std::vector<PipeDreamLevel> levels{{4, 1e10}, {2, 1e9}};
  PipeDreamPlan plan = searchPipeDream(states, levels);
  verifyPipeDream(profile, states, levels, plan, false);
  EXPECT_LE(plan.seconds, dataParallelSeconds(states, levels));
  CutStates few = cutStates(profile, 30);
  EXPECT_LE(few.size(), 30u);
  PipeDreamPlan coarse = searchPipeDream(few, levels);
  verifyPipeDream(profile, few, levels, coarse, false);
  EXPECT_GE(coarse.seconds, plan.seconds * (1 - 1e-12));
}
