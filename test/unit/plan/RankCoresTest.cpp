//===- RankCoresTest.cpp - ranks that take turns on cores -----------------===//
#include "compiler/plan/RankCores.h"

#include <gtest/gtest.h>

namespace pipec::plan {
namespace {

std::vector<StagePlan> stagesOn(const std::vector<std::vector<int>> &devices) {
  std::vector<StagePlan> stages;
  for (const std::vector<int> &of : devices) {
    stages.emplace_back();
    stages.back().devices = of;
  }
  return stages;
}

/// Two servers of four ranks.
Topology serversOf(int cores) {
  Topology topology;
  topology.levels = {{"server", 2, 1e9, 0}, {"cpu", 4, 1e9, 0}};
  topology.cores = cores;
  return topology;
}

TEST(RankCores, EnoughCoresAreNotShared) {
  const auto all = stagesOn({{0, 1, 2, 3}, {4, 5, 6, 7}});
  for (int cores : {0, 4, 8}) {
    EXPECT_FALSE(rankCores(serversOf(cores), all).isScarce());
    EXPECT_EQ(rankCores(serversOf(cores), all).ranksPerCore, 0);
  }
  // Of four ranks two are used.
  EXPECT_FALSE(rankCores(serversOf(2), stagesOn({{0}, {2}})).isScarce());
}

TEST(RankCores, RanksTakeCoresInTurn) {
  const RankCores cores =
      rankCores(serversOf(2), stagesOn({{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  ASSERT_TRUE(cores.isScarce());
  EXPECT_EQ(cores.ranksPerCore, 2);
  for (int server : {0, 4}) {
    EXPECT_EQ(cores.group.at(server), cores.group.at(server + 2));
    EXPECT_EQ(cores.group.at(server + 1), cores.group.at(server + 3));
    EXPECT_NE(cores.group.at(server), cores.group.at(server + 1));
  }
  EXPECT_NE(cores.group.at(0), cores.group.at(4));
  EXPECT_EQ(cores.cores.at(cores.group.at(0)), 1);
}

/// Three ranks of which each kept to one of two cores would leave one of them
/// half as busy as the other.
TEST(RankCores, OddOnesShareAllCores) {
  const RankCores cores = rankCores(serversOf(2), stagesOn({{0, 1, 2}}));
  EXPECT_EQ(cores.ranksPerCore, 1.5);
  for (int device : {1, 2})
    EXPECT_EQ(cores.group.at(device), cores.group.at(0));
  EXPECT_EQ(cores.cores.at(cores.group.at(0)), 2);
}

TEST(RankCores, AServerWithCoresEnoughHasOneForEachRank) {
  const RankCores cores =
      rankCores(serversOf(2), stagesOn({{0, 1, 2}, {4}, {6}}));
  EXPECT_EQ(cores.ranksPerCore, 1.5);
  EXPECT_NE(cores.group.at(4), cores.group.at(6));
  EXPECT_EQ(cores.cores.at(cores.group.at(4)), 1);
}

} // namespace
} // namespace pipec::plan
