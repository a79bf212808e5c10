//===- TrainingTest.cpp - every strategy against a plain reference --------===//
//
// Runs pipec-run itself, with ranks as threads and as processes.
//
//===----------------------------------------------------------------------===//
#include "runtime/transport/Transport.h"
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace pipec::test {
namespace {

class EveryScenario : public testing::TestWithParam<NamedScenario> {};

int stepsOf(const Scenario &scenario) { return scenario.stream() ? 17 : 6; }

/// Losses and exported weights are the reference's, bit by bit.
void expectReference(const Scenario &scenario, const Outcome &run, int steps,
                     const std::string &exported) {
  ASSERT_EQ(run.code, 0) << run.errors;
  const Reference reference = train(scenario, steps);
  EXPECT_EQ(run.losses, reference.losses);
  const auto trained = readModel(exported);
  const auto names = weightNames(scenario);
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(trained.at(names[i]), reference.weights[i]) << names[i];
  for (int l = 0; l < kLayers; ++l)
    EXPECT_EQ(trained.at("mean" + std::to_string(l)), reference.means[l]);
  EXPECT_EQ(trained.at("c"), initialValue("c"));
}

TEST_P(EveryScenario, IsTheReferenceWithThreads) {
  const Scenario &scenario = GetParam().setup;
  const std::string folder =
      freshFolder(std::string("train_") + GetParam().name);
  writePlan(scenario, folder);
  const int steps = stepsOf(scenario);
  const Outcome run =
      runTool(folder, {"--steps", std::to_string(steps), "--transport",
                       "inproc", "--export", folder + "/trained.onnx"});
  expectReference(scenario, run, steps, folder + "/trained.onnx");
  for (auto &rank : run.summary["ranks"])
    EXPECT_EQ(rank["peak_bytes"], rank["predicted_peak_bytes"]);
}

TEST_P(EveryScenario, IsTheReferenceWithProcesses) {
  const Scenario &scenario = GetParam().setup;
  const int steps = stepsOf(scenario);
  for (const TransportRow &row : transports()) {
    if (row.launch(1, {}).empty())
      continue; // threads
    SCOPED_TRACE(row.name);
    const std::string folder =
        freshFolder(std::string("processes_") + GetParam().name);
    writePlan(scenario, folder);
    const Outcome run =
        runTool(folder, {"--steps", std::to_string(steps), "--transport",
                         row.name, "--export", folder + "/trained.onnx"});
    expectReference(scenario, run, steps, folder + "/trained.onnx");
  }
}

TEST_P(EveryScenario, TheOracleIsTheReference) {
  const Scenario &scenario = GetParam().setup;
  const std::string folder =
      freshFolder(std::string("oracle_") + GetParam().name);
  writePlan(scenario, folder);
  const int steps = stepsOf(scenario);
  const Outcome run =
      runTool(folder, {"--steps", std::to_string(steps), "--oracle", "--export",
                       folder + "/trained.onnx"});
  expectReference(scenario, run, steps, folder + "/trained.onnx");
}

TEST_P(EveryScenario, VerifiesItself) {
  const Scenario &scenario = GetParam().setup;
  const std::string folder =
      freshFolder(std::string("verify_") + GetParam().name);
  writePlan(scenario, folder);
  const Outcome run =
      runTool(folder, {"--steps", std::to_string(stepsOf(scenario)), "--verify",
                       "--transport", "inproc", "--lr-schedule",
                       "cosine:warmup=2,total=8", "--shuffle", "3"});
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.output, testing::HasSubstr("of a loss 0 (none), of a tensor "
                                             "0 (none); promised 0"));
}

INSTANTIATE_TEST_SUITE_P(Training, EveryScenario,
                         testing::ValuesIn(scenarios()),
                         [](auto &info) { return info.param.name; });

/// Two runs of the same training differ when their weights are of different
/// ages.
TEST(Training, PipeDreamIsNotSynchronous) {
  const Reference one = train(scenarioNamed("stream_one"), 12),
                  four = train(scenarioNamed("stream_four"), 12);
  EXPECT_NE(one.losses, four.losses);
}

TEST(Training, SynchronousLossesDoNotDependOnThePartition) {
  const Reference one = train(scenarioNamed("one"), 6);
  for (const char *name : {"two", "three_split", "four_gpipe", "chunks"})
    EXPECT_EQ(train(scenarioNamed(name), 6).losses, one.losses) << name;
}

/// A stage that computes something else than it did: the oracle uses the same
/// stage programs, so the difference must come from how they are called.
TEST(Training, VerifyFindsAWrongNumber) {
  for (const char *transport : {"inproc", "mpi"}) {
    const std::string folder = freshFolder("verify_wrong");
    writePlan(scenarioNamed("two"), folder);
    const Outcome run =
        runTool(folder, {"--steps", "4", "--verify", "--transport", transport},
                {"PIPEC_TEST_DISTURB=2"});
    EXPECT_EQ(run.code, 77) << run.errors;
    EXPECT_THAT(run.output, testing::HasSubstr("(step 3)"));
    EXPECT_THAT(run.errors, testing::HasSubstr("promised 0"));
  }
}

/// How often each rank has updated its weights.
std::vector<int> updatesOf(const std::string &name, int steps) {
  const std::string folder = freshFolder("updates_" + name);
  const plan::Plan plan = writePlan(scenarioNamed(name), folder);
  const Outcome run =
      runTool(folder, {"--steps", std::to_string(steps), "--transport",
                       "inproc", "--trace", folder + "/trace.json"});
  EXPECT_EQ(run.code, 0) << run.errors;
  std::vector<int> updates(plan.ranks.size());
  const auto trace = nlohmann::json::parse(readText(folder + "/trace.json"));
  for (const auto &event : trace["traceEvents"])
    if (event["name"] == "update")
      ++updates[event["pid"].get<int>()];
  return updates;
}

/// An update is undone and made again exactly where later ranks find out that
/// it should have been clipped.
TEST(PostValidation, GoesBackOnlyWhenItMust) {
  const int steps = 5;
  EXPECT_EQ(updatesOf("validated_never", steps), (std::vector<int>{5, 5, 5}));
  EXPECT_EQ(updatesOf("validated_free", steps), (std::vector<int>{5, 5, 5}));
  EXPECT_EQ(updatesOf("validated_first", steps), (std::vector<int>{5, 5, 5}));
  const std::vector<int> late = updatesOf("validated_late", steps);
  EXPECT_GT(late[0], steps);
  EXPECT_EQ(late[2], steps); // the last rank knows before it updates
}

/// A gradient that is no number on the last stage: the ranks before it have
/// updated already, and end with the bits of a run with the barrier.
TEST(PostValidation, ANaNHasTheEffectItHasWithABarrier) {
  const std::string folders[] = {freshFolder("nan_barrier"),
                                 freshFolder("nan_validated")};
  for (const char *where : {"3 2", "1 2", "0 2"}) {
    const std::string spoiled = std::string("PIPEC_TEST_NAN=") + where;
    std::map<std::string, std::vector<float>> trained[2];
    std::string errors[2];
    for (bool validated : {false, true}) {
      Scenario scenario = scenarioNamed("validated_never");
      scenario.validated = validated;
      const std::string &folder = folders[validated];
      writePlan(scenario, folder);
      const std::string exported = folder + "/trained.onnx";
      const Outcome run = runTool(
          folder,
          {"--steps", "3", "--transport", "inproc", "--export", exported},
          {spoiled});
      EXPECT_EQ(run.code, 0) << run.errors;
      trained[validated] = readModel(exported);
      const Outcome longer =
          runTool(folder, {"--steps", "5", "--transport", "inproc"}, {spoiled});
      EXPECT_EQ(longer.code, 77);
      errors[validated] = longer.errors;
    }
    EXPECT_EQ(errors[0], errors[1]);
    ASSERT_EQ(trained[0].size(), trained[1].size());
    for (auto &[name, values] : trained[0]) {
      const auto &others = trained[1].at(name);
      ASSERT_EQ(values.size(), others.size());
      EXPECT_EQ(std::memcmp(values.data(), others.data(),
                            values.size() * sizeof(float)),
                0)
          << name;
    }
    EXPECT_TRUE(std::isnan(trained[1].at("W0")[0]));
  }
}

/// Checkpoints hold weights that stand.
TEST(PostValidation, CheckpointsHoldFinalWeights) {
  const std::string folder = freshFolder("validated_checkpoint");
  writePlan(scenarioNamed("validated_late"), folder);
  const std::string saved = folder + "/saved";
  Outcome run = runTool(
      folder, {"--steps", "3", "--transport", "inproc", "--checkpoint", saved});
  ASSERT_EQ(run.code, 0) << run.errors;
  run = runTool(folder, {"--steps", "6", "--transport", "inproc", "--resume",
                         saved, "--export", folder + "/trained.onnx"});
  ASSERT_EQ(run.code, 0) << run.errors;
  const Scenario &scenario = scenarioNamed("validated_late");
  const Reference reference = train(scenario, 6);
  const auto trained = readModel(folder + "/trained.onnx");
  const auto names = weightNames(scenario);
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(trained.at(names[i]), reference.weights[i]) << names[i];
}

} // namespace
} // namespace pipec::test
