// phi, beta and versions of every row against what the orders allow.
#include "compiler/strategy/Strategy.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

using namespace pipec;
using namespace pipec::strategy;

namespace {

schedule::ScheduleRequest request(std::vector<int> replicas, int microbatches) {
  schedule::ScheduleRequest result;
  result.replicas = std::move(replicas);
  result.devices =
      std::accumulate(result.replicas.begin(), result.replicas.end(), 0);
  result.microbatches = microbatches;
  return result;
}

TEST(Strategy, EveryRowGeneratesAndVerifies) {
  std::set<std::string> names;
  for (const StrategyRow &row : strategies()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    schedule::ScheduleRequest sizes;
    sizes.devices = 4;
    sizes.microbatches = 8;
    schedule::Schedule schedule = generate(row, sizes);
    EXPECT_EQ(schedule.name, row.name);
    EXPECT_EQ(row.synchronous(), row.versions == Versions::Latest);
  }
}

TEST(Strategy, OrdersFromFilesAreSynchronous) {
  const StrategyRow &row = fileStrategy();
  EXPECT_TRUE(row.synchronous());
  EXPECT_EQ(findStrategy(row.name), nullptr);
  schedule::ScheduleRequest sizes;
  sizes.devices = 3;
  sizes.microbatches = 5;
  schedule::Schedule schedule = schedule::generate("1f1b", sizes);
  schedule::VerifyOptions options;
  options.versions = versionRule(row, schedule);
  EXPECT_TRUE(verify(schedule, options).empty());
}

TEST(Strategy, PipeDreamDelays) {
  // Without replication the weights of stage s are p-1-s updates old and
  // p-s versions are kept.
  const StrategyRow &row = getStrategy("pipedream");
  for (int p : {1, 2, 4, 8}) {
    Pipeline pipeline{std::vector<int>(p, 1), 1};
    for (int s = 0; s < p; ++s) {
      EXPECT_EQ(versions(row, pipeline, s), p - s);
      EXPECT_EQ(updateEvery(row, pipeline, s), 1);
      for (int k = 0; k < 3 * p; ++k) {
        EXPECT_EQ(phi(row, pipeline, s, k), std::max(0, k - (p - 1 - s)));
        EXPECT_EQ(beta(row, pipeline, s, k), phi(row, pipeline, s, k));
      }
    }
  }
}

TEST(Strategy, PipeDreamReplicas) {
  const StrategyRow &row = getStrategy("pipedream");
  Pipeline pipeline{{3, 1}, 1};
  EXPECT_EQ(warmup(pipeline, 0), 1);
  EXPECT_EQ(warmup(pipeline, 1), 0);
  EXPECT_EQ(versions(row, pipeline, 0), 2);
  EXPECT_EQ(updateEvery(row, pipeline, 0), 3);
  // Rounds of three microbatches read one version.
  EXPECT_EQ(phi(row, pipeline, 0, 5), 0);
  EXPECT_EQ(phi(row, pipeline, 0, 6), 1);
  EXPECT_EQ(phi(row, pipeline, 1, 6), 6);
  for (auto replicas :
       {std::vector<int>{2, 1}, {3, 1}, {1, 3}, {1, 2, 1}, {4, 2, 1}, {15, 1}})
    EXPECT_NO_THROW(generate(row, request(replicas, 45)));
}

TEST(Strategy, LatestIsTheStep) {
  const StrategyRow &row = getStrategy("1f1b");
  Pipeline pipeline{{1, 1}, 4};
  EXPECT_EQ(phi(row, pipeline, 0, 3), 0);
  EXPECT_EQ(phi(row, pipeline, 0, 4), 1);
  EXPECT_EQ(versions(row, pipeline, 0), 1);
  EXPECT_EQ(updateEvery(row, pipeline, 1), 4);
}

TEST(Strategy, VerifierRefusesMissingVersions) {
  const StrategyRow &row = getStrategy("pipedream");
  schedule::ScheduleRequest sizes = request({1, 1, 1}, 9);
  schedule::Schedule schedule = generate(row, sizes);
  Pipeline pipeline{sizes.replicas, 1};
  schedule::VerifyOptions options;
  options.versions = versionRule(row, pipeline);
  // One copy too few.
  options.versions->versions = [](int stage) { return stage == 0 ? 2 : 3; };
  auto found = verify(schedule, options);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].rule, schedule::Rule::Version);
  EXPECT_EQ(found[0].message,
            "device 0: 0B2: the backward reads weight version 0, but 2 are "
            "kept and the newest is 2");
  // A version from the future.
  options.versions = versionRule(row, pipeline);
  options.versions->phi = [](int, int microbatch) { return microbatch; };
  found = verify(schedule, options);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].message,
            "device 0: 0F1: the forward reads weight version 1, but the "
            "newest is 0");
}

TEST(Strategy, UnknownName) {
  try {
    getStrategy("pipdream");
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Usage);
    EXPECT_EQ(std::string(failure.what())
                  .find("no strategy 'pipdream' (did you mean pipedream?); "
                        "there are: dp, naive, "),
              0u);
    EXPECT_NE(std::string(failure.what()).find(", auto, file:S.csv"),
              std::string::npos);
  }
}

TEST(Strategy, EverySchedule) {
  for (const schedule::ScheduleRow &row : schedule::schedules()) {
    bool trains = std::any_of(strategies().begin(), strategies().end(),
                              [&](const StrategyRow &s) {
                                return s.schedule == std::string(row.name);
                              });
    EXPECT_TRUE(trains) << row.name;
  }
}

} // namespace
