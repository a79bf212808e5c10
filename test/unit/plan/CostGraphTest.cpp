#include "RandomGraphs.h"
#include "compiler/plan/IntervalCosts.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;

static std::string failureOf(const std::function<void()> &body, Exit code) {
  try {
    body();
  } catch (const Failure &f) {
    EXPECT_EQ(f.code, code) << f.what();
    return f.what();
  }
  ADD_FAILURE() << "no failure";
  return {};
}

TEST(CostGraph, NamesWhatIsWrong) {
  CostGraph good = uniformChain(3, 1e-3, 10, 10);
  checkCostGraph(good);
  auto broken = [&](auto &&change) {
    CostGraph g = good;
    change(g);
    return failureOf([&] { checkCostGraph(g); }, Exit::BadModel);
  };
  EXPECT_NE(broken([](CostGraph &g) { g.nodes.clear(); }).find("no nodes"),
            std::string::npos);
  EXPECT_NE(broken([](CostGraph &g) {
              g.nodes[1].forwardSeconds = -1;
            }).find("layer1"),
            std::string::npos);
  EXPECT_NE(broken([](CostGraph &g) { g.nodes[2].flops = NAN; }).find("layer2"),
            std::string::npos);
  EXPECT_NE(
      broken([](CostGraph &g) { g.nodes[2].id = "layer0"; }).find("twice"),
      std::string::npos);
  EXPECT_NE(
      broken([](CostGraph &g) { g.values[1].consumers = {0}; }).find("layer1"),
      std::string::npos);
  EXPECT_NE(
      broken([](CostGraph &g) { g.values[0].consumers = {7}; }).find("7 of 3"),
      std::string::npos);
  EXPECT_NE(broken([](CostGraph &g) {
              g.weights = {{"w", -4, {0}, true}};
            }).find("'w'"),
            std::string::npos);
  EXPECT_NE(broken([](CostGraph &g) {
              g.rounded = {{4, {0}, 1}};
            }).find("copy is of weight 1 of 0"),
            std::string::npos);
  EXPECT_NE(broken([](CostGraph &g) {
              g.weights = {{"w", 4, {0}, true}};
              g.rounded = {{-2, {0}, 0}};
            }).find("the copy of weight 'w' has a negative size"),
            std::string::npos);
}

TEST(CostGraph, PinnedGroupsCloseTheStartsBetween) {
  CostGraph g = uniformChain(6, 1e-3, 10, 10);
  EXPECT_EQ(legalStarts(g), (std::vector<size_t>{0, 1, 2, 3, 4, 5}));
  g.pinTogether = {{1, 3}};
  EXPECT_EQ(legalStarts(g), (std::vector<size_t>{0, 1, 4, 5}));
  g.pinTogether = {{0, 2}, {2, 5}};
  EXPECT_EQ(legalStarts(g), (std::vector<size_t>{0}));
}

/// What is there at each node of [i, j] in turn when it runs backwards and the
/// forward has run again, and what the node works in.
static int64_t againBytes(const CostGraph &g, size_t i, size_t j) {
  int64_t most = 0;
  for (size_t at = i; at <= j; ++at) {
    int64_t works = g.nodes[at].workspaceBytes, has = 0;
    for (size_t n = i; n <= at; ++n)
      has += g.nodes[n].stashBytes;
    for (const CostStash &s : g.repeats.empty() ? g.stashes : g.repeats)
      if (s.producer >= i &&
          std::any_of(s.users.begin(), s.users.end(),
                      [&](size_t n) { return n >= i && n <= at; }))
        has += s.bytes;
    for (const CostScratch &k : g.scratch)
      if (k.first >= i && k.last == at)
        works = std::max(works, k.bytes);
    most = std::max(most, has + works);
  }
  return most;
}

/// Every interval of random graphs against sums over its nodes and tensors.
TEST(IntervalCosts, EqualsCountingByHand) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    CostGraph g = randomGraph(random, random.between(1, 9));
    IntervalCosts costs(g);
    for (size_t i = 0; i < g.nodes.size(); ++i)
      for (size_t j = i; j < g.nodes.size(); ++j) {
        auto in = [&](size_t n) { return n >= i && n <= j; };
        auto any = [&](const std::vector<size_t> &v) {
          return std::any_of(v.begin(), v.end(), in);
        };
        StageCost want;
        for (size_t n = i; n <= j; ++n) {
          want.forwardSeconds += g.nodes[n].forwardSeconds;
          want.parameterBytes += g.nodes[n].parameterBytes;
          want.stateBytes += g.nodes[n].stateBytes;
          want.stashBytes += g.nodes[n].stashBytes;
          want.workspaceBytes =
              std::max(want.workspaceBytes, g.nodes[n].workspaceBytes);
        }
        for (const auto &w : g.weights)
          if (any(w.users))
            (w.trainable ? want.parameterBytes : want.stateBytes) += w.bytes;
        for (const auto &r : g.rounded)
          if (any(r.users))
            want.roundedBytes += r.bytes;
        for (const auto &s : g.stashes)
          if (any(s.users) && s.producer >= i)
            want.stashBytes += s.bytes;
        for (const auto &s : g.inputs)
          if (any(s.users))
            want.inputBytes += s.bytes;
        for (const auto &h : g.handovers)
          if (in(h.first) && in(h.last))
            want.handoverBytes += h.bytes;
        for (const auto &h : g.furtherUses)
          if (in(h.first) && in(h.last))
            want.useBytes += h.bytes;
        for (const auto &k : g.scratch)
          if (in(k.first) && in(k.last))
            want.workspaceBytes = std::max(want.workspaceBytes, k.bytes);
        for (const auto &v : g.values)
          if (*std::max_element(v.consumers.begin(), v.consumers.end()) > j) {
            // Who reads it as well passes on what comes back.
            if (in(v.producer) || any(v.consumers))
              want.sendGradientBytes += v.gradientBytes;
            if (in(v.producer))
              want.sendBytes += v.keptFrom > j ? v.bytes : 0;
          }
        for (const auto &v : g.values)
          if (!in(v.producer) && any(v.consumers)) {
            want.receiveBytes += v.bytes;
            want.receiveGradientBytes += v.gradientBytes;
          }
        StageCost got = costs.cost(i, j);
        EXPECT_NEAR(got.forwardSeconds, want.forwardSeconds, 1e-15);
        EXPECT_EQ(got.parameterBytes, want.parameterBytes);
        EXPECT_EQ(got.stateBytes, want.stateBytes);
        EXPECT_EQ(got.stashBytes, want.stashBytes);
        EXPECT_EQ(got.workspaceBytes, want.workspaceBytes);
        EXPECT_EQ(got.useBytes, want.useBytes);
        EXPECT_EQ(got.againBytes, againBytes(g, i, j));
        EXPECT_EQ(got.receiveBytes, want.receiveBytes);
        EXPECT_EQ(got.inputBytes, want.inputBytes);
        EXPECT_EQ(got.handoverBytes, want.handoverBytes);
        EXPECT_EQ(got.sendBytes, want.sendBytes);
        EXPECT_EQ(got.sendGradientBytes, want.sendGradientBytes);
        EXPECT_EQ(got.receiveGradientBytes, want.receiveGradientBytes);
      }
  }
}
