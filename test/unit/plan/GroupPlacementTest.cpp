//===- GroupPlacementTest.cpp - no group straddles servers ----------------===//
#include "RandomGraphs.h"

#include "compiler/plan/intraop/GroupPlacement.h"

#include "gtest/gtest.h"

using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

using Leaders = std::vector<std::vector<int>>;

Topology serversOf(int servers, int devices) {
  Topology topology = oneServer(devices, 1e11, 2e-6);
  topology.levels.insert(topology.levels.begin(),
                         {"server", servers, 1e9, 5e-5});
  return topology;
}

} // namespace

TEST(GroupPlacement, FollowsThePipelineWhereItCan) {
  const Topology two = serversOf(2, 8);
  EXPECT_EQ(placeGroups(two, {{1, 2}, {3, 2}, {4, 1}, {1, 4}}),
            (Leaders{{0}, {2, 4, 6}, {8, 9, 10, 11}, {12}}));
  // In a server every place is as good.
  EXPECT_EQ(placeGroups(two, {{1, 2}, {1, 4}, {1, 2}, {1, 8}}),
            (Leaders{{0}, {2}, {6}, {8}}));
}

TEST(GroupPlacement, LargeGroupsGetServersOfTheirOwn) {
  const Topology two = serversOf(2, 8);
  // One after the other the second had devices 2 to 9.
  EXPECT_EQ(placeGroups(two, {{1, 2}, {1, 8}, {1, 4}, {2, 1}}),
            (Leaders{{0}, {8}, {2}, {6, 7}}));
  // Neighbours in the pipeline share a server.
  EXPECT_EQ(placeGroups(two, {{1, 2}, {2, 1}, {2, 4}, {2, 2}}),
            (Leaders{{0}, {2, 3}, {4, 8}, {12, 14}}));
}

TEST(GroupPlacement, OfWhatDoesNotDivideAServerThereIsNone) {
  EXPECT_TRUE(placeGroups(serversOf(2, 6), {{3, 4}}).empty());
  EXPECT_TRUE(placeGroups(serversOf(1, 4), {{1, 8}}).empty());
}

/// Whatever stages the dynamic program puts together: powers of two in a
/// server, and whole servers, in groups of sizes that divide a server.
TEST(GroupPlacement, AllSizesThatDivideAServerHaveAPlace) {
  Random random(21);
  int mixed = 0;
  for (int round = 0; round < 2000; ++round) {
    const int size = 2 << random.between(0, 3), servers = random.between(1, 5);
    const Topology topology = serversOf(servers, size);
    std::vector<StageGroups> stages;
    for (int left = topology.devices(); left > 0;) {
      int mesh = 1 << random.between(0, 4), degree = 1 << random.between(0, 4);
      if (mesh >= size)
        mesh = size * random.between(1, servers);
      if (mesh > left || degree > size || mesh % degree != 0)
        continue;
      stages.push_back({mesh / degree, degree});
      left -= mesh;
    }
    const Leaders leaders = placeGroups(topology, stages);
    ASSERT_EQ(leaders.size(), stages.size());
    std::vector<bool> taken(static_cast<size_t>(topology.devices()), false);
    int next = 0;
    bool inOrder = true;
    for (size_t s = 0; s < stages.size(); ++s) {
      ASSERT_EQ(leaders[s].size(), static_cast<size_t>(stages[s].replicas));
      for (int leader : leaders[s]) {
        inOrder = inOrder && leader == next;
        next += stages[s].degree;
        EXPECT_EQ(leader / size, (leader + stages[s].degree - 1) / size);
        for (int d = leader; d < leader + stages[s].degree; ++d) {
          EXPECT_FALSE(taken.at(static_cast<size_t>(d)));
          taken[static_cast<size_t>(d)] = true;
        }
      }
    }
    mixed += !inOrder;
  }
  EXPECT_GT(mixed, 300);
}
