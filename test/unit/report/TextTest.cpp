//===- TextTest.cpp - the summary and inspect ----------------------------===//
#include "SamplePlan.h"
#include "report/Facts.h"
#include "report/Format.h"
#include "report/Report.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace pipec::report {

using testing::HasSubstr;
using testing::Not;

TEST(Summary, IsOneScreenWithEveryPart) {
  std::string text = summary(samplePlan());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 30);
  for (const char *part :
       {"sample <1>.onnx · opset 18 · 12 nodes with the loss",
        "4 tensors with 1024 parameters train · 1 frozen (16)", "frozen: mask",
        "mse · sgd lr=0.01,momentum=0.9 · 8 microbatches of 2",
        "1f1b · 4 stages on 4 ranks", "layer2.in … layer2.out",
        "bubble 25.0 % (idle share of all ranks' time in a step)",
        "0 |F0F1F2F3", "12.3 ms a step · 1300 samples/s",
        "data parallel     24.6 ms a step · 650 samples/s · 2.00x the time",
        "even split        does not fit (needs 3 GiB)"})
    EXPECT_THAT(text, HasSubstr(part));
}

/// What a prediction rests on is known before the run that it is held against.
TEST(Summary, SaysThatCoresWereNotTimed) {
  plan::Plan plan = samplePlan();
  const char *said = " sent in a step · by cores that nobody has timed\n";
  plan.cluster.device = "native";
  EXPECT_THAT(summary(plan), HasSubstr(said));
  plan.cluster.device = "calibrated-cpu";
  EXPECT_THAT(summary(plan), Not(HasSubstr("timed")));
}

/// Whatever the strategy is called.
TEST(Summary, OneStageOnSeveralRanksIsDataParallel) {
  plan::Plan plan = samplePlan({1, 8, 2, false});
  EXPECT_THAT(planLine(plan), HasSubstr("1 stage on 2 ranks (data parallel)"));
  plan = samplePlan({1, 8, 1, false});
  EXPECT_THAT(planLine(plan), Not(HasSubstr("data parallel")));
}

TEST(Summary, SaysWhichStagesComputeAgain) {
  plan::Plan plan = samplePlan({6, 8, 1, false});
  const auto isAgain = [&](std::vector<int> stages) {
    for (plan::Stage &stage : plan.stages)
      stage.recompute = std::ranges::count(stages, stage.id) > 0;
    return planLine(plan);
  };
  EXPECT_THAT(isAgain({}), Not(HasSubstr("again")));
  EXPECT_THAT(isAgain({0, 1, 2, 3, 4, 5}),
              HasSubstr("· activations are computed again"));
  EXPECT_THAT(isAgain({2}), HasSubstr("of stage 2 are computed again"));
  EXPECT_THAT(isAgain({0, 1, 2, 4}),
              HasSubstr("of stages 0-2, 4 are computed again"));
  plan = samplePlan({40, 40, 1, false});
  std::vector<int> even;
  for (int s = 0; s < 40; s += 2)
    even.push_back(s);
  EXPECT_THAT(isAgain(even), HasSubstr("of 20 stages are computed again"));
}

/// One ONNX node may have become several operators, and stages meet inside it.
TEST(Summary, ANodeInTwoStagesIsAPartOfEach) {
  plan::Plan plan = samplePlan({3, 8, 1, false});
  plan.stages[0].first_name = "embed";
  plan.stages[0].last_name = plan.stages[1].first_name = "l6/gemm";
  plan.stages[1].last_name = plan.stages[2].first_name = "l6/gemm";
  plan.stages[2].last_name = "loss";
  EXPECT_EQ(layers(plan, 0), "embed … l6/gemm (part)");
  EXPECT_EQ(layers(plan, 1), "l6/gemm (part)");
  EXPECT_EQ(layers(plan, 2), "l6/gemm (part) … loss");
  plan.stages[2].first_name = "l7";
  EXPECT_EQ(layers(plan, 2), "l7 … loss");
  EXPECT_THAT(summary(plan), HasSubstr("embed … l6/gemm (part)"));
}

TEST(Summary, CutsLongNamesOfLayersOneByOne) {
  plan::Stage stage;
  stage.first_name = "encoder/layer_0/attention";
  stage.last_name = "loss";
  EXPECT_EQ(layers(stage), "encoder/layer_0/attention … loss");
  EXPECT_EQ(layers(stage, 20), "encode…ention … loss");
  stage.last_name = "decoder/layer_11/output";
  EXPECT_EQ(layers(stage, 25), "encod…ntion … decod…utput");
  stage.last_name = stage.first_name;
  EXPECT_EQ(layers(stage, 11), "encod…ntion");
}

TEST(Summary, OfALargePlanStaysOnAScreen) {
  std::string text = summary(samplePlan({64, 64}));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 45);
  EXPECT_THAT(text, HasSubstr("… 53 more, pipec inspect shows them"));
  EXPECT_THAT(text, Not(HasSubstr("|F0")));
}

TEST(Summary, SaysWhatDoesNotFlush) {
  std::string text = summary(samplePlan({2, 8, 2, true}));
  EXPECT_THAT(text, HasSubstr("not synchronous"));
  EXPECT_THAT(text, HasSubstr("never flushes; shown: its first 12 micro"));
}

TEST(Summary, WithoutCostsHasNoTimeline) {
  plan::Plan plan = samplePlan();
  for (plan::Stage &stage : plan.stages)
    stage.cost = {};
  EXPECT_THAT(summary(plan), Not(HasSubstr("|F0")));
}

TEST(Summary, NamesAsManyFrozenTensorsAsFit) {
  plan::Plan plan = samplePlan();
  for (int i = 0; i < 40; ++i) {
    plan.weights.push_back(plan.weights[0]);
    plan.weights.back().name = "buffer" + std::to_string(i);
  }
  std::vector<std::string> lines = frozenLines(plan, 60);
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string &line : lines)
    EXPECT_LE(width(line), 60);
  EXPECT_THAT(lines[0], HasSubstr("frozen: mask, buffer0, buffer1"));
  EXPECT_THAT(lines[1], HasSubstr(" more"));
}

TEST(Inspect, ListsTensorsAndTransfers) {
  std::string text = inspectText(samplePlan({64, 64}));
  EXPECT_THAT(text, HasSubstr("layer63.weight  weight  float32  [16, 16]"));
  EXPECT_THAT(text, HasSubstr("layer0.out   activation     0   1  4.00 KiB"));
  EXPECT_THAT(text, Not(HasSubstr("pipec inspect shows them")));
}

/// A weight of several stages sends gradients that are no edge.
TEST(Inspect, SaysWhereTiedGradientsMeet) {
  plan::Plan plan = samplePlan();
  EXPECT_THAT(inspectText(plan), Not(HasSubstr("tied weight")));
  plan.stages[3].weights.push_back(plan.stages[0].weights.back());
  const std::string name =
      plan.weights[plan.stages[0].weights.back().weight].name;
  EXPECT_EQ(name, "layer0.weight");
  EXPECT_THAT(
      inspectText(plan),
      HasSubstr("\n\ntied weight       bytes  stages  gradients\n"
                "layer0.weight  1.00 KiB  0,3     added up once a step, "
                "between these stages\n\ntensor"));
  plan.strategy.update = "round";
  EXPECT_THAT(inspectText(plan), HasSubstr("added up before every update"));
  // Pieces of a sequence share what their stage has.
  plan.strategy.slices = 2;
  for (plan::Stage &stage : plan.stages)
    stage.cost = {}; // their order would be another one
  EXPECT_THAT(inspectText(plan), Not(HasSubstr("tied weight")));
}

/// As the cluster file calls them.
TEST(Summary, ShowsAllLevelsOfACluster) {
  plan::Plan plan = samplePlan();
  plan.cluster = {"cpu", "cpu", 2, 4};
  EXPECT_THAT(summary(plan), HasSubstr("· 2 servers of 4 CPU ranks"));
  plan.cluster.levels = {{"server", 2}, {"soc\x1bket", 2}, {"core", 2}};
  EXPECT_THAT(summary(plan),
              HasSubstr("· 2 servers of 2 soc\\x1bkets of 2 CPU ranks"));
  plan.cluster.levels = {{"level 0", 2}, {"level 1", 2}, {"level 2", 2}};
  EXPECT_THAT(summary(plan), HasSubstr("· 2 of 2 of 2 CPU ranks"));
}

TEST(Inspect, JsonAgreesWithThePlan) {
  plan::Plan plan = samplePlan();
  auto json = nlohmann::json::parse(inspectJson(plan));
  EXPECT_EQ(json["stages"].size(), 4u);
  EXPECT_EQ(json["ranks"][2]["peak_bytes"], plan.ranks[2].peak_bytes);
  EXPECT_EQ(json["model"]["frozen"][0], "mask");
  auto tasks = json["timeline"]["ranks"][3];
  EXPECT_EQ(tasks.size(), 16u);
  EXPECT_EQ(tasks[1]["kind"], "B");
  EXPECT_GE(tasks[1]["start_s"], tasks[0]["end_s"]);
}

TEST(RunSummary, SetsMeasuredBesidePredicted) {
  plan::Plan plan = samplePlan();
  MeasuredRun run;
  run.steps = 3;
  run.step_s = 0.0246;
  run.samples_per_s = 650;
  run.ranks = {{0, plan.ranks[0].peak_bytes, 0, 0.01, {}, 0},
               {1, 2 * plan.ranks[1].peak_bytes, 0, 0.01, {}, 0}};
  std::string text = runSummary(plan, run);
  EXPECT_THAT(text, HasSubstr("step              12.3 ms   24.6 ms  2.00x"));
  EXPECT_THAT(text, HasSubstr("peak of rank 0   75.1 KiB  75.1 KiB  equal"));
  EXPECT_THAT(text, HasSubstr("peak of rank 1   75.0 KiB   150 KiB  2.00x"));
  EXPECT_THAT(text, testing::Not(HasSubstr("libraries")));
  // What a GPU holds beside the arena stands below its rank.
  run.ranks[0].overhead_bytes = 300 << 20;
  EXPECT_THAT(runSummary(plan, run),
              testing::ContainsRegex("rank 0.*equal\n  context, libraries, "
                                     "code +300 MiB\n.*rank 1"));
}

TEST(RunSummary, SaysWhatMakesAPredictionTrue) {
  plan::Plan plan = samplePlan();
  MeasuredRun run;
  auto said = [&](const char *device, double measured) {
    plan.cluster = {"cpu", device, 2, 4};
    run.step_s = measured * plan.predicted.step_s;
    return runSummary(plan, run);
  };
  const auto remedy =
      HasSubstr("\nnobody has timed these cores: pipec calibrate --cpus "
                "2x4 -o cluster.json, then compile with --cluster "
                "cluster.json instead of --cpus\n");
  EXPECT_THAT(said("native", 1.16), remedy);
  EXPECT_THAT(said("native", 0.84), remedy);
  EXPECT_THAT(said("native", 1.14), Not(HasSubstr("calibrate")));
  EXPECT_THAT(said("calibrated-cpu", 2), Not(HasSubstr("calibrate")));
  EXPECT_THAT(said("profiled", 2), Not(HasSubstr("calibrate")));
}

/// Where a step differs from the next as much as from what was predicted.
TEST(RunSummary, SaysThatCoresWereNotEquallyFast) {
  plan::Plan plan = samplePlan();
  MeasuredRun run;
  auto said = [&](const char *kind, double measured, double slow) {
    plan.cluster = {kind, "calibrated-cpu", 2, 4};
    run.step_s = measured * plan.predicted.step_s;
    run.quick_step_s = 18.1e-3, run.slow_step_s = slow * 1e-3;
    return runSummary(plan, run);
  };
  EXPECT_THAT(said("cpu", 1.3, 26.4),
              HasSubstr("\nhalf of the steps took from 18.1 ms to 26.4 ms, the "
                        "others less or more"));
  EXPECT_THAT(said("cpu", 0.8, 26.4), HasSubstr("half of the steps"));
  EXPECT_THAT(said("cpu", 1.1, 26.4), Not(HasSubstr("half of the steps")));
  EXPECT_THAT(said("cpu", 1.3, 20), Not(HasSubstr("half of the steps")));
  EXPECT_THAT(said("gpu", 1.3, 26.4), Not(HasSubstr("half of the steps")));
}

TEST(Summary, SaysWhatIsUnused) {
  plan::Plan plan = samplePlan();
  plan.cluster.servers = 1, plan.cluster.devices_per_server = 4;
  EXPECT_THAT(summary(plan), Not(HasSubstr("unused")));
  plan.cluster.servers = 2;
  EXPECT_THAT(summary(plan),
              HasSubstr("\nunused     4 of 8 devices; more stages "
                        "and replicas take more (--stages, "
                        "--replicas, or another "
                        "--stage-file)\n"));
}

TEST(RunSummary, SaysWhoHadTheCores) {
  plan::Plan plan = samplePlan();
  MeasuredRun run;
  auto said = [&](const char *kind, double measured, double others) {
    plan.cluster = {kind, "native", 2, 4};
    run.step_s = measured * plan.predicted.step_s;
    run.others_share = others;
    return runSummary(plan, run);
  };
  EXPECT_THAT(said("cpu", 1.5, 0.48),
              HasSubstr("\nother programs had 48.0 % of this machine's cores: "
                        "the prediction counts on all of them\n"));
  EXPECT_THAT(said("cpu", 1.5, 0.48), Not(HasSubstr("calibrate")));
  EXPECT_THAT(said("cpu", 1.5, 0.05), Not(HasSubstr("other programs")));
  EXPECT_THAT(said("cpu", 1.1, 0.48), Not(HasSubstr("other programs")));
  EXPECT_THAT(said("cuda", 1.5, 0.48), Not(HasSubstr("other programs")));
  // A tenth of the cores does not make a step eight times as long.
  EXPECT_THAT(said("cpu", 8.4, 0.105),
              HasSubstr("\nother programs had 10.5 % of this machine's cores: "
                        "the prediction counts on all of them\n"
                        "nobody has timed these cores: pipec calibrate"));
}

} // namespace pipec::report
