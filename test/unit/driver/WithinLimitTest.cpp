//===- WithinLimitTest.cpp - which plan auto takes where memory is short --===//
#include "compiler/driver/WithinLimit.h"
#include "compiler/driver/SmallestPlan.h"
#include "compiler/plan/Infeasible.h"
#include "compiler/strategy/Strategy.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

using namespace pipec;

namespace {

constexpr int64_t kLimit = 1000;
/// What a compilation that wrote the plan of a strategy returns here.
constexpr int kMade = 7;

CompileOptions automatic() {
  CompileOptions options;
  options.strategy = "auto";
  options.memoryLimit = kLimit;
  return options;
}

plan::NoFit refusal(int64_t bytes) {
  return plan::NoFit("nothing fits", {{plan::Remedy::Limit, bytes}});
}

Prospect tooLargeToTry(const CompileOptions &) { return {-1, 0}; }

/// A planner of a model too large to be tried; `fits` is what `strategy` makes
/// with at most `given` bytes, everything else is over the limit down to half
/// of it and refused below.
struct LargeModel {
  std::string strategy;
  int64_t given;
  bool refusesAuto;
  std::vector<std::string> asked = {};

  int attempt(const CompileOptions &options) {
    asked.push_back(options.strategy);
    const int64_t left = kLimit - options.memoryMargin;
    if (options.strategy == "auto" && refusesAuto)
      throw refusal(5000);
    if (options.strategy == strategy && left <= given)
      return kMade;
    if (left < kLimit / 2)
      throw refusal(4000);
    throw OverLimit{kLimit + left, kLimit, 0, 1};
  }
  int run() {
    return withinLimit(
        automatic(), [&](const CompileOptions &o) { return attempt(o); },
        tooLargeToTry);
  }
};

} // namespace

/// The planner's refusal of auto is not the last word of strategies that keep
/// less, and what they make is planned with less where it is over.
TEST(WithinLimit, LargeModelsTakeWhatKeepsLessWhereAutoIsRefused) {
  EXPECT_EQ((LargeModel{"1f1b", kLimit, true}.run()), kMade);
  EXPECT_EQ((LargeModel{"1f1b", 700, true}.run()), kMade);
  LargeModel half{"v-half", 700, true};
  EXPECT_EQ(half.run(), kMade);
  EXPECT_EQ(half.asked.back(), "v-half");
}

TEST(WithinLimit, LargeModelsTakeWhatKeepsLessWhereAutoIsOver) {
  LargeModel itself{"auto", 700, false};
  EXPECT_EQ(itself.run(), kMade);
  EXPECT_EQ(std::set(itself.asked.begin(), itself.asked.end()),
            (std::set<std::string>{"auto"}));
  EXPECT_EQ((LargeModel{"v-min", 700, false}.run()), kMade);
}

TEST(WithinLimit, LargeModelsThatNothingMakesAreRefused) {
  EXPECT_THROW((LargeModel{"none", 0, true}.run()), plan::NoFit);
  EXPECT_THROW((LargeModel{"none", 0, false}.run()), plan::NoFit);
}

/// A plan that grew since it was tried is planned with less, and the smallest
/// is named where that does not help.
TEST(WithinLimit, ThePlanThatWasTriedMayStillBeOver) {
  int64_t made = kLimit;
  auto attempt = [&](const CompileOptions &options) {
    if (options.strategy == "auto")
      throw refusal(5000);
    const int64_t left = kLimit - options.memoryMargin;
    if (left > made)
      throw OverLimit{kLimit + left, kLimit, 0, 1};
    return kMade;
  };
  auto trial = [](const CompileOptions &options) {
    if (options.strategy == "auto")
      throw refusal(5000);
    return options.memoryLimit > kLimit ? throw refusal(6000)
                                        : Prospect{900, 1};
  };
  made = 700;
  EXPECT_EQ(withinLimit(automatic(), attempt, trial), kMade);
  made = 0;
  EXPECT_THROW(withinLimit(automatic(), attempt, trial), plan::NoFit);
}

/// With less memory no plan gets faster: what is over the limit and as slow as
/// a plan that fits is not planned again, what is faster is.
TEST(WithinLimit, WhatIsSlowerThanAPlanThatFitsIsTriedOnce) {
  std::map<std::string, int> tries;
  std::string made;
  auto attempt = [&](const CompileOptions &options) {
    if (options.strategy == "auto" && options.memoryMargin <= 0)
      throw OverLimit{2 * kLimit, kLimit, 0, 1, 0.4};
    made = options.strategy;
    return kMade;
  };
  auto trial = [&](const CompileOptions &options) -> Prospect {
    ++tries[options.strategy];
    if (options.strategy == "1f1b")
      return {900, 1};
    if (options.strategy == "gpipe" && options.memoryMargin > 0)
      return {800, 0.9};
    throw OverLimit{2 * kLimit, kLimit, 0, 1,
                    options.strategy == "gpipe" ? 0.5 : 2};
  };
  EXPECT_EQ(withinLimit(automatic(), attempt, trial), kMade);
  EXPECT_EQ(made, "gpipe");
  EXPECT_EQ(tries["gpipe"], 3 + 4); // once more in earnest; halfway up
  EXPECT_EQ(tries["v-half"], 1);
  EXPECT_EQ(tries["naive"], 1);
}

/// What is tried is searched for quickly, the winner then with all effort, and
/// the plan that is made is the faster of both.
TEST(WithinLimit, TheFastestOfQuickTrialsIsSearchedInEarnest) {
  for (const double earnest : {0.5, 2.0}) {
    std::map<std::string, int> whole;
    bool isQuick = false;
    auto attempt = [&](const CompileOptions &options) {
      if (options.strategy == "auto")
        throw OverLimit{2 * kLimit, kLimit, 0, 1, 0.4};
      isQuick = options.quick;
      return kMade;
    };
    auto trial = [&](const CompileOptions &options) -> Prospect {
      if (options.strategy == "auto")
        throw OverLimit{2 * kLimit, kLimit, 0, 1, 0.4};
      whole[options.strategy] += !options.quick;
      if (options.strategy == "gpipe")
        return {900, options.quick ? 1 : earnest};
      return {900, 3};
    };
    EXPECT_EQ(withinLimit(automatic(), attempt, trial), kMade);
    EXPECT_EQ(isQuick, earnest > 1);
    EXPECT_EQ(whole["gpipe"], 1);
    whole.erase("gpipe");
    // Searched orders are looked at as who asks for them by name.
    for (const auto &[name, count] : whole)
      EXPECT_EQ(count, name == "zb" || name == "zb-v" ? 1 : 0) << name;
  }
}

/// One of them that a quick search takes for slow, or does not find at all.
TEST(WithinLimit, SearchedOrdersAreSearchedInEarnest) {
  for (const char *searched : {"zb", "zb-v"}) {
    std::string made;
    auto attempt = [&](const CompileOptions &options) {
      if (options.strategy == "auto")
        throw OverLimit{2 * kLimit, kLimit, 0, 1, 0.4};
      made = options.strategy;
      return kMade;
    };
    auto trial = [&](const CompileOptions &options) -> Prospect {
      if (options.strategy == "auto")
        throw OverLimit{2 * kLimit, kLimit, 0, 1, 0.4};
      if (options.strategy != searched)
        return {900, 3};
      if (options.quick)
        throw plan::NoFit("too large", {}, "", kLimit);
      return {900, 2};
    };
    EXPECT_EQ(withinLimit(automatic(), attempt, trial), kMade);
    EXPECT_EQ(made, searched);
  }
}

/// One need in one message: what is missing is up to the limit that was tried
/// and is named, whatever the planner believed.
TEST(WithinLimit, WhatIsMissingIsUpToTheLimitThatIsNamed) {
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  auto attempt = [](const CompileOptions &) -> int {
    throw plan::NoFit("the planner's belief", {{plan::Remedy::Limit, 3000}}, "",
                      kLimit);
  };
  auto trial = [&](const CompileOptions &asked) -> Prospect {
    if (asked.memoryLimit == kLimit && !asked.quick)
      attempt(asked);
    if (asked.memoryLimit < 5120)
      throw OverLimit{5120, asked.memoryLimit, 0, 1};
    return {5120, 1};
  };
  try {
    withinLimit(options, attempt, trial);
    FAIL();
  } catch (const plan::NoFit &failure) {
    EXPECT_STREQ(failure.what(),
                 "nothing fits in memory: the smallest plan found needs 5.00 "
                 "KiB on a device, 4.02 KiB more than the 0.98 KiB there are; "
                 "it would fit with --memory-limit 5120");
  }
}

/// With what the planner itself took a plan for it would make it again.
TEST(WithinLimit, APlanIsNotMadeTwice) {
  std::vector<int64_t> given;
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  auto attempt = [&](const CompileOptions &asked) -> int {
    given.push_back(kLimit - asked.memoryMargin);
    if (given.back() >= 400)
      throw OverLimit{2 * kLimit, kLimit, 0, 1, 1, 400};
    return kMade;
  };
  EXPECT_EQ(withinLimit(options, attempt, tooLargeToTry), kMade);
  EXPECT_EQ(given, (std::vector<int64_t>{kLimit, 150}));
}

/// What tasks work in is not in the planner's estimate, and of most plans the
/// same: once it is known the next plan fits, just so.
TEST(WithinLimit, WhatTheEstimateLacksIsLeftOut) {
  std::vector<int64_t> given;
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  auto attempt = [&](const CompileOptions &asked) -> int {
    given.push_back(kLimit - asked.memoryMargin);
    const int64_t bytes = given.back() + 230;
    if (bytes > kLimit)
      throw OverLimit{bytes, kLimit, 0, 1, 1, given.back()};
    return kMade;
  };
  EXPECT_EQ(withinLimit(options, attempt, tooLargeToTry), kMade);
  EXPECT_EQ(given, (std::vector<int64_t>{kLimit, kLimit - 230}));
}

/// Of what keeps least, a plan that large steps leap over is found in small
/// ones: nothing else is tried behind it.
TEST(WithinLimit, WhatKeepsLeastIsTriedInSmallStepsToo) {
  CompileOptions options = automatic();
  options.recompute = "none";
  auto attempt = [&](const CompileOptions &asked) -> int {
    const int64_t given = kLimit - asked.memoryMargin;
    if (given >= 600 && given <= 700)
      return kMade;
    if (given < 600)
      throw refusal(5000);
    throw OverLimit{given + 1500, kLimit, 0, 1, 1, given};
  };
  options.strategy = "naive";
  EXPECT_EQ(withinLimit(options, attempt, tooLargeToTry), kMade);
}

/// A misspelt name would be passed over in silence.
TEST(WithinLimit, WhatIsTriedAreStrategies) {
  for (const bool over : {false, true}) {
    std::set<std::string> tried;
    auto attempt = [&](const CompileOptions &) -> int {
      over ? throw OverLimit{2 * kLimit, kLimit, 0, 1} : throw refusal(5000);
    };
    auto trial = [&](const CompileOptions &options) -> Prospect {
      tried.insert(options.strategy);
      throw refusal(4000);
    };
    EXPECT_THROW(withinLimit(automatic(), attempt, trial), plan::NoFit);
    EXPECT_GE(tried.size(), 4u);
    tried.erase("auto");
    for (const std::string &name : tried)
      EXPECT_NE(strategy::findStrategy(name), nullptr) << name;
  }
}

/// Those that are searched in earnest come behind one that fits.
TEST(WithinLimit, WhatIsSearchedInEarnestAreStrategies) {
  std::set<std::string> earnest;
  auto attempt = [&](const CompileOptions &options) {
    if (options.strategy == "auto")
      throw OverLimit{2 * kLimit, kLimit, 0, 1, 0.4};
    return kMade;
  };
  auto trial = [&](const CompileOptions &options) -> Prospect {
    if (options.strategy == "auto")
      throw OverLimit{2 * kLimit, kLimit, 0, 1, 0.4};
    if (!options.quick)
      earnest.insert(options.strategy);
    return {900, 3};
  };
  EXPECT_EQ(withinLimit(automatic(), attempt, trial), kMade);
  EXPECT_GE(earnest.size(), 3u); // beside the one that was taken
  for (const std::string &name : earnest)
    EXPECT_NE(strategy::findStrategy(name), nullptr) << name;
}

/// Nothing lies between two large steps that is not tried, and what is computed
/// again has a try with all there is.
TEST(WithinLimit, PlansBetweenLargeStepsAreFound) {
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  // With so many bytes or more the planner finds a plan, in its own estimate of
  // so many, of so many in truth.
  struct Known {
    int64_t given, bytes;
  };
  auto run = [&](std::vector<Known> known, std::string recompute) {
    auto attempt = [&](const CompileOptions &asked) -> int {
      const int64_t given = kLimit - asked.memoryMargin;
      if (asked.recompute != recompute)
        throw OverLimit{2 * kLimit, kLimit, 0, 1, 1, given};
      for (const Known &plan : known)
        if (plan.given <= given) {
          if (plan.bytes <= kLimit)
            return kMade;
          throw OverLimit{plan.bytes, kLimit, 0, 1, 1, plan.given};
        }
      throw refusal(5000);
    };
    return withinLimit(options, attempt, tooLargeToTry);
  };
  options.recompute = "none";
  EXPECT_EQ(run({{990, 2000}, {980, 1900}, {970, 900}}, "none"), kMade);
  EXPECT_THROW(run({{990, 2000}, {980, 1900}}, "none"), plan::NoFit);
  options.recompute = "auto";
  EXPECT_EQ(run({{990, 900}}, "full"), kMade);
  EXPECT_THROW(run({{990, 1100}}, "full"), plan::NoFit);
}

/// What the planner refuses at once it may take for too much: it has another
/// chance without what code works in, and its first words are the last.
TEST(WithinLimit, WhatIsRefusedAtOnceIsAskedAgainWithoutWorkspace) {
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  for (const bool helps : {true, false}) {
    std::vector<CompileOptions> asked;
    auto attempt = [&](const CompileOptions &o) -> int {
      asked.push_back(o);
      if (helps && o.withoutWorkspace)
        return kMade;
      throw plan::NoFit(o.withoutWorkspace ? "second" : "first",
                        {{plan::Remedy::Limit, 5000}});
    };
    try {
      EXPECT_EQ(withinLimit(options, attempt, tooLargeToTry), kMade);
      EXPECT_TRUE(helps);
    } catch (const plan::NoFit &failure) {
      EXPECT_FALSE(helps);
      EXPECT_EQ(failure.shortage, "first");
    }
    ASSERT_EQ(asked.size(), 2u);
    EXPECT_FALSE(asked[0].withoutWorkspace || asked[0].quick);
    EXPECT_TRUE(asked[1].withoutWorkspace && asked[1].quick);
  }
}

/// An order that is searched for may need more than the planner's first word,
/// and more again under a larger limit: one that made a plan is named, and
/// limits between what was refused and what it asks for are passed over.
TEST(WithinLimit, OfALargeModelALimitIsNamedThatMadeAPlan) {
  std::vector<int64_t> limits;
  auto trial = [&](const CompileOptions &o) -> Prospect {
    limits.push_back(o.memoryLimit);
    if (o.memoryLimit < 6600)
      throw refusal(o.memoryLimit == 1     ? 3200
                    : o.memoryLimit < 6400 ? 6400
                                           : 6720);
    return {-1, 0};
  };
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  options.recompute = "full";
  const std::optional<Smallest> found = smallestPlan(options, trial);
  ASSERT_TRUE(found);
  EXPECT_EQ(limits, (std::vector<int64_t>{1, 4000, 6600}));
  EXPECT_EQ(found->enough(), 6600);
}

/// Of a large model that a plan keeps to a limit is the planner's word: where
/// what is built does not, advice follows as for all that does not fit.
TEST(WithinLimit, OfALargeModelWhatIsBuiltHasTheLastWord) {
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  options.recompute = "full";
  auto refused = [&](int64_t most) {
    return plan::NoFit("nothing fits", {{plan::Remedy::Limit, most}}, "",
                       kLimit);
  };
  // What the limit leads to is refused; another way leads to a plan.
  auto trial = [&](const CompileOptions &o) -> Prospect {
    if (!o.withoutWorkspace)
      throw refused(kLimit + 1);
    if (o.memoryLimit - o.memoryMargin > kLimit / 2)
      throw refused(kLimit / 2 - 100);
    return {-1, 0};
  };
  bool holds = true;
  auto attempt = [&](const CompileOptions &o) -> int {
    trial(o);
    if (holds)
      return kMade;
    throw OverLimit{kLimit + 1, kLimit, 0, 1};
  };
  EXPECT_EQ(withinLimit(options, attempt, trial), kMade);
  holds = false;
  try {
    withinLimit(options, attempt, trial);
    FAIL();
  } catch (const plan::NoFit &failure) {
    EXPECT_NE(std::string(failure.what()).find("plan found keeps to"),
              std::string::npos)
        << failure.what();
  }
}

/// The ways to what would fit cross: nothing is planned twice on them.
TEST(WithinLimit, EqualOptionsAreTriedOnce) {
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  options.microbatches = 8;
  std::vector<CompileOptions> asked;
  auto attempt = [](const CompileOptions &) -> int { throw refusal(5000); };
  auto trial = [&](const CompileOptions &o) -> Prospect {
    asked.push_back(o);
    throw OverLimit{100000, o.memoryLimit, 0, 1};
  };
  EXPECT_THROW(withinLimit(options, attempt, trial), plan::NoFit);
  ASSERT_GT(asked.size(), 1u);
  for (size_t i = 0; i < asked.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_FALSE(asked[i] == asked[j]) << j << " and " << i;
}

/// The planner has not looked at all shapes when it names the least: plans
/// below that are found, and the bytes of the plan are the need.
TEST(WithinLimit, APlanBelowWhatThePlannerCallsTheLeastIsNamed) {
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  auto attempt = [](const CompileOptions &) -> int { throw refusal(5120); };
  auto trial = [](const CompileOptions &o) -> Prospect {
    for (const int64_t planned : {5100, 4900, 4700})
      if (o.memoryLimit >= planned)
        return {planned - 50, 1, planned};
    throw refusal(5120);
  };
  try {
    withinLimit(options, attempt, trial);
    FAIL();
  } catch (const plan::NoFit &failure) {
    ASSERT_FALSE(failure.remedies.empty());
    EXPECT_EQ(failure.remedies.front().kind, plan::Remedy::Limit);
    EXPECT_EQ(failure.remedies.front().amount, 4650);
  }
}

/// Whatever limit nothing fits under, the same need is named; and who has so
/// much memory, or more, gets a plan, though the ways to it differ.
TEST(WithinLimit, TheSameNeedIsNamedWhateverIsAsked) {
  struct Known {
    int64_t planned, bytes;
  };
  // The planner finds the largest it takes for what it is given.
  const Known plans[] = {{700, 930},   {720, 905},   {760, 890},  {800, 990},
                         {1000, 1180}, {1200, 1150}, {1300, 1600}};
  for (const char *strategy : {"1f1b", "naive", "auto"}) {
    const auto bytesOf = [&](const CompileOptions &o) {
      const int64_t given = o.memoryLimit - o.memoryMargin;
      const Known *found = nullptr;
      for (const Known &one : plans)
        if (one.planned <= given)
          found = &one;
      if (!found)
        throw plan::NoFit("nothing fits", {{plan::Remedy::Limit, 700}}, "",
                          given);
      if (found->bytes > o.memoryLimit)
        throw OverLimit{found->bytes, o.memoryLimit, 0, 1, 1, found->planned};
      return *found;
    };
    std::set<int64_t> needs;
    int64_t most = 0, made = 0;
    for (int64_t limit = 100; limit < 1700; limit += 5) {
      CompileOptions options = automatic();
      options.strategy = strategy;
      options.memoryLimit = limit;
      const auto run = [&](const CompileOptions &asked) {
        return withinLimit(
            asked,
            [&](const CompileOptions &o) {
              EXPECT_LE(bytesOf(o).bytes, asked.memoryLimit);
              return kMade;
            },
            [&](const CompileOptions &o) {
              const Known found = bytesOf(o);
              return Prospect{found.bytes, 1, found.planned};
            });
      };
      try {
        EXPECT_EQ(run(options), kMade);
        ++made;
      } catch (const plan::NoFit &failure) {
        ASSERT_FALSE(failure.remedies.empty()) << limit;
        ASSERT_EQ(failure.remedies.front().kind, plan::Remedy::Limit);
        options.memoryLimit = failure.remedies.front().amount;
        needs.insert(options.memoryLimit);
        most = limit;
        EXPECT_EQ(run(options), kMade) << limit;
      }
    }
    ASSERT_EQ(needs.size(), 1u) << strategy;
    EXPECT_LT(most, *needs.begin()) << strategy;
    EXPECT_GT(made, 100) << strategy;
  }
}

/// For what else may fit the planner's first word holds.
TEST(WithinLimit, OtherOptionsAreNotTriedWithoutWorkspace) {
  CompileOptions options = automatic();
  options.strategy = "1f1b";
  std::map<std::string, std::set<bool>> without;
  auto attempt = [](const CompileOptions &) -> int { throw refusal(5000); };
  auto trial = [&](const CompileOptions &o) -> Prospect {
    without[o.strategy].insert(o.withoutWorkspace);
    throw refusal(6000);
  };
  EXPECT_THROW(withinLimit(options, attempt, trial), plan::NoFit);
  EXPECT_EQ(without["1f1b"], (std::set<bool>{false, true})); // more memory
  without.erase("1f1b");
  EXPECT_GE(without.size(), 2u);
  for (const auto &[strategy, tried] : without)
    EXPECT_EQ(tried, std::set<bool>{false}) << strategy;
}

/// What auto takes for a little more than there is may keep to it; what takes
/// more than that is not asked for so.
TEST(WithinLimit, APlanThatIsTakenForALittleTooMuchIsMade) {
  const auto run = [](int64_t takenFor) {
    return withinLimit(
        automatic(),
        [=](const CompileOptions &o) {
          if (kLimit - o.memoryMargin < takenFor)
            return kMade + 1; // something slower
          return kMade;
        },
        tooLargeToTry);
  };
  EXPECT_EQ(run(kLimit * 21 / 20), kMade);
  EXPECT_EQ(run(kLimit * 5 / 4), kMade + 1);
}

/// What is wrong with a model is the first attempt's to say, and no trial's.
TEST(WithinLimit, WhatIsWrongWithAModelIsSaidByTheFirstAttempt) {
  int attempts = 0;
  const auto trial = [](const CompileOptions &) -> Prospect {
    throw Failure(Exit::Usage, "no plan");
  };
  for (const char *strategy : {"auto", "1f1b"}) {
    CompileOptions options = automatic();
    options.strategy = strategy;
    EXPECT_EQ(withinLimit(
                  options,
                  [&](const CompileOptions &) { return ++attempts, 65; },
                  trial),
              65);
  }
  EXPECT_EQ(attempts, 2);
}

namespace {

/// A planner whose `auto` finds a slow plan under a limit: it takes what is
/// faster for too much.
struct SlowUnderALimit {
  double free = 0.5;        ///< seconds of a step without a limit
  bool refuses1f1b = false; ///< but where it is given 400 to 500
  std::map<std::string, int> tried = {};
  std::string made = {};

  Prospect trial(const CompileOptions &options) {
    ++tried[options.strategy];
    const int64_t given = options.memoryLimit - options.memoryMargin;
    if (options.strategy == "auto" && given > 2 * kLimit)
      throw OverLimit{5 * kLimit, kLimit, 0, 1, free, 5 * kLimit};
    if (options.strategy == "auto")
      return {800, 5};
    if (options.strategy != "1f1b")
      throw refusal(4000);
    if (refuses1f1b && (given < 400 || given > 500))
      throw refusal(given < 400 ? 400 : 1200);
    return {950, 1, 1100};
  }
  int run() {
    return withinLimit(
        automatic(),
        [&](const CompileOptions &o) {
          made = o.strategy;
          return kMade;
        },
        [&](const CompileOptions &o) { return trial(o); });
  }
};

} // namespace

/// A plan that fits is the last word only where memory costs no time.
TEST(WithinLimit, APlanThatFitsIsHeldAgainstRivalsWhereTheLimitBinds) {
  SlowUnderALimit binding;
  EXPECT_EQ(binding.run(), kMade);
  EXPECT_EQ(binding.made, "1f1b");
  SlowUnderALimit free{5};
  EXPECT_EQ(free.run(), kMade);
  EXPECT_EQ(free.made, "auto");
  EXPECT_EQ(free.tried.size(), 1u);
}

/// The smallest plan of 1f1b, which no way down from the limit leads to.
TEST(WithinLimit, TheSmallestPlanInOrderIsARivalToo) {
  SlowUnderALimit binding{0.5, true};
  EXPECT_EQ(binding.run(), kMade);
  EXPECT_EQ(binding.made, "1f1b");
  // Not where memory costs little.
  SlowUnderALimit little{4.5, true};
  EXPECT_EQ(little.run(), kMade);
  EXPECT_EQ(little.made, "auto");
}

/// The way down from a plan that is too large takes large steps: what is leapt
/// over may fit and be faster, by name and under auto.
TEST(WithinLimit, FasterPlansAreLookedForOnTheWayBackUp) {
  const auto trial = [](const CompileOptions &o) -> Prospect {
    const int64_t given = o.memoryLimit - o.memoryMargin;
    if (o.strategy != "1f1b")
      throw refusal(4000);
    if (given >= 900)
      throw OverLimit{1400, kLimit, 0, 1, 1, 900};
    if (given >= 850) // as where no order is found for the stages
      throw Failure(Exit::NoFit, "no order fits");
    return given >= 600 ? Prospect{950, 2, 600} : Prospect{700, 5, 500};
  };
  for (const char *strategy : {"1f1b", "auto"}) {
    CompileOptions options = automatic();
    options.strategy = strategy;
    int64_t given = 0;
    EXPECT_EQ(withinLimit(
                  options,
                  [&](const CompileOptions &o) {
                    if (trial(o).bytes <= kLimit)
                      given = o.memoryLimit - o.memoryMargin;
                    return kMade;
                  },
                  trial),
              kMade);
    EXPECT_GE(given, 600) << strategy;
  }
}

/// An order that `auto` finds with a little less may be faster than what it
/// finds with all there is.
TEST(WithinLimit, AutoIsAskedForALittleLessToo) {
  const auto trial = [](const CompileOptions &o) -> Prospect {
    const int64_t given = o.memoryLimit - o.memoryMargin;
    if (o.strategy != "auto")
      throw refusal(4000);
    if (given > 2 * kLimit)
      throw OverLimit{5 * kLimit, kLimit, 0, 1, 0.5, 5 * kLimit};
    if (given > kLimit)
      throw OverLimit{1100, kLimit, 0, 1, 1, 1100};
    return given > kLimit * 15 / 16   ? Prospect{800, 5}
           : given > kLimit * 12 / 16 ? Prospect{700, 2}
                                      : throw refusal(700);
  };
  int64_t given = 0;
  EXPECT_EQ(withinLimit(
                automatic(),
                [&](const CompileOptions &o) {
                  given = o.memoryLimit - o.memoryMargin;
                  return kMade;
                },
                trial),
            kMade);
  EXPECT_LE(given, kLimit * 15 / 16);
}

/// The planner takes a plan that keeps its activations for too much, and one
/// that computes them again fits: of one strategy both are tried, and what is
/// faster is made.
TEST(WithinLimit, WhatKeepsItsActivationsIsTriedBesideWhatFits) {
  for (const double kept : {1.0, 3.0}) {
    CompileOptions options = automatic();
    options.strategy = "zb-v";
    std::string made;
    auto attempt = [&](const CompileOptions &o) {
      made = o.recompute;
      return kMade;
    };
    auto trial = [&](const CompileOptions &o) -> Prospect {
      if (o.recompute == "auto")
        return {900, 2, 900, true};
      if (!o.withoutWorkspace)
        throw refusal(2 * kLimit);
      return {950, kept, 2 * kLimit};
    };
    EXPECT_EQ(withinLimit(options, attempt, trial), kMade);
    EXPECT_EQ(made, kept < 2 ? "selective" : "auto");
  }
}

/// What fits as it is computes nothing again: nothing else is tried.
TEST(WithinLimit, OneStrategyThatKeepsItsActivationsIsTriedOnce) {
  CompileOptions options = automatic();
  options.strategy = "zb-v";
  std::set<std::string> tried;
  auto trial = [&](const CompileOptions &o) -> Prospect {
    tried.insert(o.recompute);
    return {900, 2, 900, false};
  };
  EXPECT_EQ(withinLimit(
                options, [](const CompileOptions &) { return kMade; }, trial),
            kMade);
  EXPECT_EQ(tried, std::set<std::string>{"auto"});
}

/// An order that is searched for with a little less may be the faster one.
TEST(WithinLimit, OneStrategyIsTriedWithLessWhereTheLimitCostsTime) {
  for (const double free : {1.0, 2.0}) {
    CompileOptions options = automatic();
    options.strategy = "searched";
    int64_t margin = 0;
    auto attempt = [&](const CompileOptions &o) {
      margin = o.memoryMargin;
      return kMade;
    };
    auto trial = [&](const CompileOptions &o) -> Prospect {
      if (o.memoryMargin < -kLimit)
        throw OverLimit{2 * kLimit, kLimit, 0, 1, free};
      return o.memoryMargin > 0 ? Prospect{800, 1.5} : Prospect{900, 2};
    };
    EXPECT_EQ(withinLimit(options, attempt, trial), kMade);
    EXPECT_EQ(margin > 0, free < 2);
  }
}
