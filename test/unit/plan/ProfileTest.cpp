//===- ProfileTest.cpp - measured costs, and the step they are of ---------===//
#include "compiler/plan/Profile.h"
#include "RandomGraphs.h"
#include "compiler/plan/FitStep.h"
#include "compiler/plan/PlanVerifier.h"
#include "support/Failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::plan;
using namespace pipec::plan::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Profile, ReplacesTimesAndRoundTrips) {
  CostGraph graph = uniformChain(4, 1e-3, 10, 10);
  graph.nodes[1].forwardSeconds = 3e-3;
  graph.nodes[2].backwardWeightSeconds = graph.nodes[3].backwardWeightSeconds =
      0;
  Profile profile;
  profile.origin = {8, 2, "cpu", "abc", "fp32"};
  profile.stages = {{0, 1, {8e-3, 2e-3, 4e-3}}, {2, 3, {2e-3, 2e-3, 6e-3}}};
  profile.nodes = {{"layer3", {5e-3, 1e-3, 2e-3}}};
  profile.step = MeasuredStep{"gpipe", 16, {2, 1}, {true, false}, 0.25};
  Profile again = parseProfile(writeProfile(profile), "again");
  EXPECT_EQ(writeProfile(again), writeProfile(profile));
  ASSERT_TRUE(again.step);
  EXPECT_EQ(again.step->replicas, profile.step->replicas);
  EXPECT_THAT(applyProfile(again, {8, 2, "cpu", "abc", ""}, graph), IsEmpty());
  // Spread by the model's weights, evenly where it has none, nodes on top.
  EXPECT_DOUBLE_EQ(graph.nodes[0].forwardSeconds, 2e-3);
  EXPECT_DOUBLE_EQ(graph.nodes[1].forwardSeconds, 6e-3);
  EXPECT_DOUBLE_EQ(graph.nodes[2].backwardWeightSeconds, 3e-3);
  EXPECT_DOUBLE_EQ(graph.nodes[2].forwardSeconds, 1e-3);
  EXPECT_DOUBLE_EQ(graph.nodes[3].forwardSeconds, 5e-3);
  // Other threads are remarked upon; what is not said is not compared.
  EXPECT_THAT(
      applyProfile(again, {8, 1, "cpu", "abc", ""}, graph),
      ElementsAre(HasSubstr("ranks of 2 threads, those of this plan have 1")));
  EXPECT_THAT(applyProfile(again, {}, graph), IsEmpty());
  // So is what others had of the cores, from a tenth on.
  profile.othersShare = 0.09;
  again = parseProfile(writeProfile(profile), "again");
  EXPECT_EQ(again.othersShare, 0.09);
  EXPECT_THAT(applyProfile(again, {}, graph), IsEmpty());
  again.othersShare = 0.48;
  EXPECT_THAT(
      applyProfile(again, {}, graph),
      ElementsAre("other programs had 48 % of the machine's cores while the "
                  "profile was measured: its step, and the predicted one, are "
                  "longer than its tasks explain; measure again when the "
                  "machine has nothing else to do"));
  // Stages alone write no list of nodes.
  profile.nodes.clear();
  EXPECT_EQ(writeProfile(profile).find("nodes"), std::string::npos);
}

TEST(Profile, MismatchesAreNamed) {
  CostGraph graph = uniformChain(4, 1e-3, 10, 10);
  auto message = [&](const std::string &text) -> std::string {
    try {
      CostGraph copy = graph;
      applyProfile(parseProfile(text, "p.json"), {4, 1, "cpu", "abc", "bf16"},
                   copy);
    } catch (const Failure &f) {
      EXPECT_EQ(f.code, Exit::BadPlan);
      return f.what();
    }
    ADD_FAILURE() << text;
    return {};
  };
  auto has = [](const std::string &m, const std::string &part) {
    EXPECT_NE(m.find(part), std::string::npos) << m;
  };
  std::string times =
      R"("forward_s":1,"backward_input_s":1,"backward_weight_s":1)";
  has(message("{"), "p.json");
  has(message("{}"), "version");
  has(message(R"({"version":1,"nodes":[{"id":"layer0"}]})"), "forward_s");
  has(message(R"({"version":1,"nodes":[{"id":"x",)" + times + "}]}"),
      "no node 'x'");
  has(message(R"({"version":1,"precision":"fp32"})"),
      "measured with --precision fp32, not bf16");
  has(message(R"({"version":1,"stages":[{"first_node":2,"last_node":9,)" +
              times + "}]}"),
      "2 to 9");
  has(message(R"({"version":1,"stages":[{"first_node":0,"last_node":2,)" +
              times + R"(},{"first_node":2,"last_node":3,)" + times + "}]}"),
      "two measured stages");
  has(message(R"({"version":1,"microbatch_size":2,"nodes":[]})"),
      "microbatches of 2");
  has(message(
          R"({"version":1,"nodes":[{"id":"layer0","forward_s":-1,"backward_input_s":1,)"
          R"("backward_weight_s":1}]})"),
      "at least 0");
  has(message(
          R"({"version":1,"nodes":[{"id":"layer0","forward_s":1e300,"backward_input_s":1,)"
          R"("backward_weight_s":1}]})"),
      "\"forward_s\" must be at most 1e9; pipec-run PLAN … --profile-out FILE "
      "writes one");
  has(message(R"({"version":1,"device":"gpu"})"), "kind gpu, not cpu");
  has(message(R"({"version":1,"device":7})"), "\"device\" is not a text");
  has(message(R"({"version":1,"threads":-1})"), "whole number \"threads\"");
  has(message(R"({"version":1,"model_sha256":"def"})"), "SHA-256 def");
  has(message(R"({"version":1,"model_sha256":"def"})"),
      "leave out --profile, or measure this model as it is planned now: "
      "pipec-run PLAN … --profile-out FILE");
  has(message(R"({"version":1,"stages":[{"first_node":0,"last_node":2,)" +
              times + "}]}"),
      "no times for node 'layer3'");
  has(message(R"({"version":1})"), "no times for node 'layer0'");
  has(message(R"({"version":1,"step":3})"), "\"step\" is not an object");
  has(message(R"({"version":1,"others_share":1.5})"),
      "\"others_share\" is a share, from 0 to 1");
  has(message(R"({"version":1,"others_share":"0.5"})"),
      "the file has no number \"others_share\"");
  auto step = [&](const std::string &replicas, const char *microbatches,
                  const char *recompute) {
    return message(R"({"version":1,"stages":[{"first_node":0,"last_node":3,)" +
                   times + R"(}],"step":{"strategy":"1f1b","seconds":1,)" +
                   R"("recompute":)" + recompute + R"(,"replicas":)" +
                   replicas + R"(,"microbatches":)" + microbatches + "}}");
  };
  has(step("[0]", "1", "[true]"), "whole numbers from 1 to 65536");
  has(step("[4294967297]", "1", "[true]"), "whole numbers from 1 to 65536");
  has(step("[1,1]", "1", "[true]"), "2 numbers for 1 stages");
  has(step("[1]", "0", "[true]"), "must be from 1 to 65536");
  has(step("[1]", "65537", "[true]"), "must be from 1 to 65536");
  has(step("[1]", "1", "[0]"), "\"recompute\" is true or false of each stage");
  has(step("[1]", "1", "true"),
      "\"recompute\" is a list with true or false for each stage; pipec-run "
      "PLAN … --profile-out FILE writes it");
  has(step("[1]", "1", "[true,true]"), "\"recompute\" has 2 values for 1");
  // What nobody reads is named, with its line.
  has(message("{\"version\":1,\n\"thread\":2}"),
      "p.json:2: the file has no member \"thread\" (did you mean threads?); "
      "there are: version");
  has(message(
          "{\"version\":1,\"stages\":[\n{\"first_node\":0,\n\"warmup\":0}]}"),
      "p.json:3: an entry of \"stages\" has no member \"warmup\"");
}

namespace {

/// Two stages on two ranks with messages that cost something.
struct MeasuredPipeline : TwoStages {
  MeasuredPipeline() : TwoStages(uniformChain(8, 1e-4, 100000, 10), "1f1b", 8) {
    request.topology.device.turnSeconds = 1e-6;
    request.topology.device.ringSeconds = 30e-6;
    request.topology.device.takeSeconds = 8e-6;
  }
  double step(const Topology &topology) const {
    TwoStages asked = *this;
    asked.request.topology = topology;
    return asked.price().stepSeconds;
  }
};

} // namespace

/// What is predicted with the fitted topology is the measured step, whichever
/// side the model erred on, also of ranks that take turns on one core.
TEST(FitStep, ExplainsTheMeasuredStep) {
  MeasuredPipeline p;
  for (int cores : {0, 1}) {
    p.request.topology.cores = cores;
    const double modelled = p.step(p.request.topology);
    for (double share : {0.97, 1.0, 1.1, 3.0}) {
      const Topology fitted = fitStep(p.request, p.split, share * modelled);
      EXPECT_NEAR(p.step(fitted), share * modelled, 1e-6 * modelled)
          << share << " with " << cores << " cores";
    }
  }
}

/// A step that others disturbed says nothing of how many tasks it had: it is
/// the tasks that took longer.
TEST(FitStep, WhatIsMoreThanTurnsStretchesTasks) {
  MeasuredPipeline p;
  const Topology fitted =
      fitStep(p.request, p.split, 2 * p.step(p.request.topology));
  EXPECT_LT(fitted.device.turnSeconds,
            p.request.topology.device.turnSeconds + 21e-6);
  EXPECT_GT(fitted.device.stretchFactor, 1.5);
  EXPECT_LT(fitted.device.stretchFactor, 2.5);
  PlanRequest whole = p.request;
  whole.topology = fitted;
  whole.stages = 1;
  verifyPlan(whole, makePlan(whole));
}

/// Longer steps are longer turns; shorter ones shorter messages.
TEST(FitStep, ChangesOnlyWhatWasNotMeasured) {
  MeasuredPipeline p;
  const Topology &before = p.request.topology;
  const double modelled = p.step(before);
  const Topology longer = fitStep(p.request, p.split, 1.2 * modelled);
  EXPECT_GT(longer.device.turnSeconds, before.device.turnSeconds);
  EXPECT_EQ(longer.levels[0].latency, before.levels[0].latency);
  const Topology shorter = fitStep(p.request, p.split, 0.98 * modelled);
  EXPECT_LT(shorter.device.turnSeconds, before.device.turnSeconds);
  EXPECT_LT(shorter.device.ringSeconds, before.device.ringSeconds);
  EXPECT_LT(shorter.device.takeSeconds, before.device.takeSeconds);
  EXPECT_GT(shorter.levels[0].bandwidth, before.levels[0].bandwidth);
  // Less than the tasks' own time cannot be explained.
  const Topology least = fitStep(p.request, p.split, 0.1 * modelled);
  EXPECT_GT(p.step(least), 0.5 * modelled);
  // Nor do messages become free for that.
  EXPECT_GE(least.levels[0].latency, 0.05 * before.levels[0].latency);
}
