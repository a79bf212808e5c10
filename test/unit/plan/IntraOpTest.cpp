//===- IntraOpTest.cpp - operators divided among devices ------------------===//
#include "ShardableGraphs.h"

#include "compiler/plan/Infeasible.h"
#include "compiler/plan/InterOperator.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/intraop/IntraOp.h"
#include "compiler/plan/intraop/ShardedCost.h"

#include "support/Failure.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

namespace {

/// What IntraOp minimizes: seconds of a microbatch, its share of the update,
/// and what bytes are worth of weights and of what is made.
double objective(const CostGraph &graph, size_t first, size_t last,
                 const StageSharding &sharding, const ShardingGroup &group) {
  const auto isInside = [&](size_t node) {
    return first <= node && node <= last;
  };
  StageCost read;
  for (const CostWeight &weight : graph.weights)
    if (std::any_of(weight.users.begin(), weight.users.end(), isInside))
      (weight.trainable ? read.parameterBytes : read.stateBytes) +=
          weight.bytes;
  const StageCost cost = shardedCost(graph, read, first, last, sharding, group);
  double made = 0;
  for (const ShardedValue &value : graph.sharding->values) {
    if (!isInside(value.producer))
      continue;
    const ShardedOp &op = graph.sharding->ops[value.producer];
    const bool isWhole =
        makesAs(op, sharding.nodes[value.producer - first], 0) == kWhole;
    made += static_cast<double>(value.bytes) / (isWhole ? 1 : group.devices);
  }
  const auto parameters = static_cast<double>(cost.parameterBytes);
  return cost.seconds() - graph.forwardTaskSeconds - graph.backwardTaskSeconds +
         group.updateSecondsPerByte / group.microbatches * parameters +
         group.secondsPerByte *
             (group.copies * parameters +
              group.gradientCopies * static_cast<double>(cost.useBytes) +
              static_cast<double>(cost.stateBytes) + made);
}

/// The least over all choices of nodes and weights.
double bruteForce(const CostGraph &graph, size_t first, size_t last,
                  const ShardingGroup &group) {
  const ShardingGraph &sharding = *graph.sharding;
  StageSharding tried;
  tried.degree = group.devices;
  tried.nodes.resize(last - first + 1);
  tried.weights.assign(graph.weights.size(), kWhole);
  double best = std::numeric_limits<double>::infinity();
  std::function<void(size_t)> weights = [&](size_t w) {
    if (w == tried.weights.size()) {
      best = std::min(best, objective(graph, first, last, tried, group));
      return;
    }
    for (Layout layout : {kWhole, 0, 1}) {
      tried.weights[w] = layout;
      weights(w + 1);
    }
    tried.weights[w] = kWhole;
  };
  std::function<void(size_t)> nodes = [&](size_t n) {
    if (n == tried.nodes.size())
      return weights(0);
    for (const OpSharding &choice :
         choicesOf(sharding, first + n, group.devices)) {
      tried.nodes[n] = choice;
      nodes(n + 1);
    }
  };
  nodes(0);
  return best;
}

} // namespace

TEST(IntraOp, EqualsBruteForce) {
  Random random(5);
  int divided = 0;
  for (int round = 0; round < 150; ++round) {
    CostGraph graph = randomShardable(random, random.between(3, 5));
    if (graph.weights.size() > 2)
      continue;
    const PlanRequest request = requestOf(graph, 4, random);
    ShardingGroup group = groupOf(request, random.between(0, 1) ? 4 : 2, 1);
    group.updateSecondsPerByte = random.between(0, 1) * 1e-9;
    group.secondsPerByte = random.between(0, 1) * 1e-9;
    const IntraOp program(request.graph, group);
    const size_t nodes = graph.nodes.size();
    for (size_t first = 0; first < 2; ++first) {
      IntraOp::Sweep sweep(program, first);
      for (size_t last = first; last < nodes; ++last) {
        sweep.growTo(last);
        EXPECT_TRUE(sweep.best().isExact);
        const double best = bruteForce(graph, first, last, group);
        EXPECT_NEAR(sweep.seconds(), best, 1e-9 * best)
            << "round " << round << ", nodes " << first << "-" << last;
        EXPECT_NEAR(objective(graph, first, last, sweep.best(), group), best,
                    1e-9 * best);
        for (const OpSharding &choice : sweep.best().nodes)
          divided += choice.factor >= 0;
      }
    }
  }
  EXPECT_GT(divided, 200); // else nothing was decided
}

/// A column- and a row-parallel product with something between that needs no
/// messages: one all-reduce forward, one backward (Megatron-LM, figure 3).
TEST(IntraOp, PerceptronsBecomeColumnAndRowParallel) {
  CostGraph graph;
  auto sharding = std::make_shared<ShardingGraph>();
  for (const char *name : {"norm", "up", "gelu", "down", "add"}) {
    CostNode node;
    node.id = node.name = name;
    node.forwardSeconds = name[0] == 'u' || name[0] == 'd' ? 1e-3 : 1e-5;
    node.backwardInputSeconds = node.forwardSeconds;
    graph.nodes.push_back(node);
  }
  for (const char *name : {"w1", "w2"}) {
    graph.weights.push_back({name, 1 << 24, {}, true});
    sharding->weights.push_back({{4096, 4096}, {}});
  }
  graph.weights[0].users = sharding->weights[0].readers = {1};
  graph.weights[1].users = sharding->weights[1].readers = {3};
  const int64_t bytes = 1 << 20;
  sharding->values = {{0, {64, 4096}, bytes, bytes, {1, 4}},
                      {1, {64, 16384}, 4 * bytes, 4 * bytes, {2}},
                      {2, {64, 16384}, 4 * bytes, 4 * bytes, {3}},
                      {3, {64, 4096}, bytes, bytes, {4}},
                      {4, {64, 4096}, bytes, bytes, {}}};
  // A microbatch of one sample whose rows attend to each other: rows are not
  // divided.
  const ShardingFactor along{"columns", 16384, {1}, {1}, false};
  sharding->ops = {{{}, {}, {0}},
                   {{{"columns", 16384, {kWhole, 1}, {1}, false},
                     {"sum", 4096, {1, 0}, {kWhole}, true}},
                    {{false, 0}, {true, 0}},
                    {1}},
                   {{along}, {{false, 1}}, {2}},
                   {{{"columns", 4096, {kWhole, 1}, {1}, false},
                     {"sum", 16384, {1, 0}, {kWhole}, true}},
                    {{false, 2}, {true, 1}},
                    {3}},
                   {{}, {{false, 0}, {false, 3}}, {4}}};
  graph.sharding = sharding;
  PlanRequest request;
  request.graph = graph;
  request.topology = oneServer(4, 100e9, 1e-6);
  request.topology.device.memoryBandwidth = 1e12;
  request.topology.device.launchSeconds = 0;
  request.strategy = strategyFacts("1f1b");
  request.microbatches = 8;
  const ShardingGroup group = groupOf(request, 4, 1);
  const IntraOp program(graph, group);
  IntraOp::Sweep sweep(program, 0);
  sweep.growTo(4);
  const StageSharding best = sweep.best();
  EXPECT_EQ(best.nodes[1].factor, 0); // columns
  EXPECT_EQ(best.nodes[2].factor, 0);
  EXPECT_EQ(best.nodes[3].factor, 1); // sum
  EXPECT_EQ(best.weights, (std::vector<Layout>{1, 0}));
  // 2 (t - 1) / t of the bytes, once in each direction.
  const double reduce = 2 * 3 * (1e-6 + bytes / 4 / 100e9);
  const StageCost cost = shardedCost(graph, {}, 0, 4, best, group);
  EXPECT_NEAR(cost.forwardSeconds, 2e-5 + 1e-5 / 4 + 2e-3 / 4 + reduce, 1e-12);
  EXPECT_NEAR(cost.backwardInputSeconds, 2e-5 + 1e-5 / 4 + 2e-3 / 4 + reduce,
              1e-12);
  EXPECT_EQ(cost.backwardWeightSeconds, 0);
}

/// Where links cost more than devices bring everyone does all of it.
TEST(IntraOp, SlowLinksDivideNothing) {
  Random random(7);
  PlanRequest request = requestOf(randomShardable(random, 12), 4, random);
  request.topology.levels[0].latency = 1;
  const IntraOp program(request.graph, groupOf(request, 4, 1));
  IntraOp::Sweep sweep(program, 0);
  sweep.growTo(11);
  double whole = 0;
  for (const CostNode &node : request.graph.nodes)
    whole += node.forwardSeconds + node.backwardInputSeconds +
             node.backwardWeightSeconds;
  EXPECT_LE(sweep.seconds(), whole * (1 + 1e-3));
}

/// makePlan() has every plan recomputed by the verifier.
TEST(IntraOp, PlansOfGroupsHoldAndAreNoSlower) {
  Random random(8);
  int sharded = 0, limited = 0;
  for (int round = 0; round < 40; ++round) {
    PlanRequest request =
        requestOf(randomShardable(random, random.between(6, 14)), 8, random);
    request.topology.levels = {{"server", 2, 1e9, 5e-6},
                               {"device", 4, random.real(1e9, 1e11), 2e-6}};
    request.planner = "alpa";
    request.topology.device.launchSeconds = 0;
    request.microbatches = random.between(1, 2); // too few for replicas
    const double apart = makePlan(request).stepSeconds;
    request.tensorParallel = {1, 2, 4};
    const PlanResult plan = makePlan(request);
    EXPECT_LE(plan.stepSeconds, apart * (1 + 1e-12));
    std::vector<bool> taken(8, false);
    for (const StagePlan &stage : plan.stages) {
      sharded += stage.sharding.isSharded();
      for (int leader : stage.devices) {
        EXPECT_EQ(leader / 4, (leader + stage.sharding.degree - 1) / 4);
        for (int d = leader; d < leader + stage.sharding.degree; ++d) {
          ASSERT_LT(d, 8);
          EXPECT_FALSE(taken[static_cast<size_t>(d)]);
          taken[static_cast<size_t>(d)] = true;
        }
      }
    }
    // With less memory, what there is keeps to it.
    int64_t peak = 0;
    for (const StagePlan &stage : plan.stages)
      peak = std::max(peak, stage.memory.total());
    request.memoryLimit = peak * 9 / 10;
    try {
      makePlan(request);
      ++limited;
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::NoFit) << failure.what();
    }
  }
  EXPECT_GT(limited, 5);
  EXPECT_GT(sharded, 10);
}

/// Of a request for hardly anything too, whose 256-fold is no model's need.
TEST(IntraOp, TheSameNeedIsNamedWhateverThereIs) {
  PlanRequest request = twoProducts();
  request.planner = "alpa";
  request.tensorParallel = {1, 2};
  std::set<int64_t> needs;
  for (const int64_t limit : {1, 1000, 1000000}) {
    request.memoryLimit = limit;
    try {
      makePlan(request);
      ADD_FAILURE() << "a plan of " << limit << " bytes";
    } catch (const NoFit &failure) {
      ASSERT_EQ(failure.remedies.size(), 1u) << failure.what();
      EXPECT_EQ(failure.remedies[0].kind, Remedy::Limit);
      needs.insert(failure.remedies[0].amount);
    }
  }
  ASSERT_EQ(needs.size(), 1u);
  request.memoryLimit = *needs.begin();
  EXPECT_GE(*needs.begin(), peakBytes(makePlan(request).stages));
}

/// No mesh has such groups: `--what-if devices` asks for half as many.
TEST(IntraOp, GroupsOfMoreDevicesThanThereAreFindNothing) {
  const PlanRequest request = twoProducts();
  const IntervalCosts costs(request.graph);
  const StepModel model(request, costs);
  InterOperator search(request, model, {0, 1}, {16});
  EXPECT_TRUE(search.solve(false).empty());
  EXPECT_TRUE(search.solveEqual(3).empty());
}

/// Nine values that are made and read by rows or by columns, the one as good as
/// the other, first all made and then all read: too many ways to keep.
TEST(IntraOp, TooManyStatesAreNoProof) {
  CostGraph graph;
  auto sharding = std::make_shared<ShardingGraph>();
  const size_t count = 9;
  const int64_t bytes = 8 << 20;
  for (size_t n = 0; n < 2 * count; ++n) {
    CostNode node;
    node.id = "n" + std::to_string(n);
    node.forwardSeconds = 1e-3;
    graph.nodes.push_back(node);
    const bool makes = n < count;
    const auto along = [&](int dimension) {
      const std::vector<int> one{dimension};
      return ShardingFactor{"d", 8, makes ? std::vector<int>{} : one, one,
                            false};
    };
    ShardedOp op{{along(0), along(1)}, {}, {n}};
    if (!makes)
      op.operands = {{false, n - count}};
    sharding->ops.push_back(op);
    sharding->values.push_back({n, {8, 8}, bytes, bytes, {}});
    if (makes)
      sharding->values.back().readers = {n + count};
  }
  graph.sharding = sharding;
  Random random(9);
  const PlanRequest request = requestOf(graph, 4, random);
  const IntraOp program(request.graph, groupOf(request, 4, 1));
  IntraOp::Sweep sweep(program, 0);
  sweep.growTo(3);
  EXPECT_TRUE(sweep.best().isExact);
  sweep.growTo(count - 1);
  EXPECT_FALSE(sweep.best().isExact);
  sweep.growTo(2 * count - 1); // what was dropped stays so
  EXPECT_FALSE(sweep.best().isExact);
}
