//===- CollectiveTest.cpp - sums in pieces, over any number of parties ----===//
#include "runtime/exec/Collectives.h"
#include "runtime/exec/GradientNorm.h"
#include "runtime/program/Sha256.h"
#include "test/unit/runtime/TestModel.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

namespace pipec::test {
namespace {

namespace fs = std::filesystem;

/// Gradients of several pieces; lengths that no slice divides evenly.
constexpr int64_t kElements = 900001;
constexpr int64_t kStride = 900032 * 4; ///< bytes of an accumulator

float value(int use, int replica, int64_t i) {
  return std::sin(static_cast<float>(i % 7919) + 10.0f * use + 3.0f * replica) *
         std::pow(10.0f, static_cast<float>((i + use) % 9 - 4));
}

/// Stages that share one weight: `uses[s]` are the global uses of stage s.
struct Layout {
  std::vector<std::vector<int>> ranks, uses;
};

plan::Plan planOf(const Layout &layout, const std::string &folder) {
  plan::Plan plan;
  fs::create_directories(folder);
  fs::copy_file(PIPEC_TEST_STAGES "/stage_0_4_4.so", folder + "/s.so",
                fs::copy_options::overwrite_existing);
  plan.cluster.kind = "cpu";
  plan.strategy.versions = "latest", plan.strategy.update = "step";
  plan::Weight weight;
  weight.name = "e", weight.dtype = "float32", weight.role = "weight";
  weight.shape = {kElements};
  weight.bytes = kElements * 4;
  plan.weights.push_back(weight);
  int ranks = 0;
  for (size_t s = 0; s < layout.ranks.size(); ++s) {
    plan::Stage stage;
    stage.id = static_cast<int>(s);
    stage.ranks = layout.ranks[s];
    stage.library = "s.so";
    stage.sha256 = sha256OfFile(folder + "/s.so");
    stage.regions["gradients"].bytes =
        kStride * static_cast<int64_t>(layout.uses[s].size());
    plan::StageWeight held;
    held.region = "weights";
    for (size_t u = 0; u < layout.uses[s].size(); ++u)
      held.gradients.push_back(
          {layout.uses[s][u], static_cast<int64_t>(u) * kStride});
    stage.weights.push_back(held);
    plan.stages.push_back(stage);
    for (int rank : stage.ranks)
      ranks = std::max(ranks, rank + 1);
  }
  for (int r = 0; r < ranks; ++r) {
    plan::Rank rank;
    rank.rank = r;
    for (const plan::Stage &stage : plan.stages)
      for (int owner : stage.ranks)
        if (owner == r)
          rank.stages.push_back(stage.id);
    rank.program.kind = "step";
    rank.program.actions.push_back({"B", rank.stages[0], 0, {}});
    plan.ranks.push_back(rank);
  }
  return plan;
}

/// Runs `body` on a thread per rank.
void onAllRanks(
    const plan::Plan &plan, const std::string &folder,
    const std::function<void(RankState &, Transport &, Watch &)> &body) {
  const auto count = static_cast<int>(plan.ranks.size());
  auto ends = transportNamed("inproc").open({count, 60, 1});
  Alarm alarm;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      Watch watch(rank, "rank " + std::to_string(rank), alarm);
      RankState state(plan, folder, rank, openDevice({plan, rank}));
      body(state, *ends[rank], watch);
    });
  for (std::thread &thread : threads)
    thread.join();
}

float *accumulator(RankState &state, const Layout &layout, int stage,
                   size_t use) {
  return floats(state.unit(stage).memory.at(PIPEC_GRADIENTS) +
                static_cast<int64_t>(use) * kStride);
}

class EveryLayout : public testing::TestWithParam<Layout> {};

TEST_P(EveryLayout, GradientsAreSummedInOrder) {
  const Layout &layout = GetParam();
  const std::string folder = freshFolder("collective");
  const plan::Plan plan = planOf(layout, folder);
  // Over the replicas of a stage first, then over the uses by their index.
  std::vector<float> expected(kElements);
  std::map<int, int> stageOf;
  for (size_t s = 0; s < layout.uses.size(); ++s)
    for (int use : layout.uses[s])
      stageOf[use] = static_cast<int>(s);
  for (int64_t i = 0; i < kElements; ++i) {
    bool first = true;
    for (auto [use, stage] : stageOf) {
      float sum = value(use, 0, i);
      for (size_t r = 1; r < layout.ranks[stage].size(); ++r)
        sum += value(use, static_cast<int>(r), i);
      expected[i] = first ? sum : expected[i] + sum;
      first = false;
    }
  }
  onAllRanks(plan, folder, [&](RankState &state, Transport &net, Watch &watch) {
    Collectives collectives(state, net, watch);
    for (auto &unit : state.units)
      for (size_t u = 0; u < layout.uses[unit->stage->id].size(); ++u) {
        float *to = accumulator(state, layout, unit->stage->id, u);
        for (int64_t i = 0; i < kElements; ++i)
          to[i] = value(layout.uses[unit->stage->id][u], unit->replica, i);
      }
    for (auto &unit : state.units)
      collectives.reduceGradients(*unit, 0);
    collectives.foldTies(0);
    for (auto &unit : state.units) {
      const float *total = accumulator(state, layout, unit->stage->id, 0);
      int64_t wrong = 0;
      for (int64_t i = 0; i < kElements; ++i)
        wrong += total[i] != expected[i];
      EXPECT_EQ(wrong, 0) << "rank " << state.rank << " stage "
                          << unit->stage->id;
    }
    // The scratch was enough, and nothing but it was needed.
    EXPECT_EQ(state.arena.peak(), plan::rankBytes(plan, state.rank));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Collective, EveryLayout,
    testing::Values(Layout{{{0}}, {{0, 1, 2}}}, Layout{{{0, 1}}, {{0}}},
                    Layout{{{0, 1, 2}}, {{0, 1}}},
                    Layout{{{0}, {1}}, {{0}, {1}}},
                    Layout{{{0}, {1}}, {{1}, {0}}},
                    Layout{{{0}, {1}, {2}}, {{0, 3}, {1}, {2, 4}}},
                    Layout{{{0, 1}, {2}}, {{0}, {1}}},
                    Layout{{{0}, {1, 2, 3}}, {{2}, {0, 1}}},
                    Layout{{{0}, {1}, {0}}, {{0}, {1}, {2}}},
                    Layout{{{0, 1}, {2, 3}}, {{1}, {0}}}));

TEST(GradientNorm, IsTheRootOfTheSquares) {
  std::vector<float> values(1003);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = value(0, 0, static_cast<int64_t>(i));
    sum += double(values[i]) * values[i];
  }
  EXPECT_NEAR(norm(values.data(), 1003), std::sqrt(sum),
              1e-12 * std::sqrt(sum));
  EXPECT_EQ(norm(values.data(), 0), 0);
  values[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(norm(values.data(), 1003)));
}

TEST(GradientNorm, IsTheSameOnAllRanks) {
  // A weight with two uses counts once; large gradients are scaled, small ones
  // are not, NaN stays.
  const Layout layout{{{0}, {1}, {2}}, {{0}, {1}, {2}}};
  const std::string folder = freshFolder("norm");
  const plan::Plan plan = planOf(layout, folder);
  for (const float size :
       {1.0f, 1e-9f, std::numeric_limits<float>::quiet_NaN()}) {
    const double exact = std::sqrt(double(kElements)) * size;
    std::vector<double> found(3);
    onAllRanks(plan, folder,
               [&](RankState &state, Transport &net, Watch &watch) {
                 float *to = accumulator(state, layout, state.rank, 0);
                 std::fill(to, to + kElements, size);
                 GradientNorm gradientNorm(state, net, watch);
                 // The second call must not remember the first.
                 gradientNorm.coefficient(2, 0);
                 found[state.rank] = gradientNorm.coefficient(2, 1);
               });
    for (double coefficient : found) {
      if (std::isnan(size))
        EXPECT_TRUE(std::isnan(coefficient));
      else
        EXPECT_NEAR(coefficient, std::min(1.0, 2 / (exact + 1e-6)), 1e-7);
      if (!std::isnan(size))
        EXPECT_EQ(coefficient, found[0]);
    }
  }
}

} // namespace
} // namespace pipec::test
