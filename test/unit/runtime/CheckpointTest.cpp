//===- CheckpointTest.cpp - saving, resuming, and what goes wrong ---------===//
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

namespace pipec::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<double> from(const std::vector<double> &losses, size_t step) {
  return {losses.begin() + static_cast<std::ptrdiff_t>(step), losses.end()};
}

/// A folder with a plan; "--transport inproc" where processes do not matter.
std::string planFor(const std::string &test, const std::string &scenario) {
  const std::string folder = freshFolder(test);
  writePlan(scenarioNamed(scenario), folder);
  return folder;
}

std::vector<std::string> training(int steps,
                                  const std::vector<std::string> &more) {
  std::vector<std::string> arguments = {"--steps", std::to_string(steps),
                                        "--transport", "inproc"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// The names in a checkpoint folder.
std::vector<std::string> contents(const std::string &folder) {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class EveryScenario : public testing::TestWithParam<NamedScenario> {};

TEST_P(EveryScenario, GoesOnToTheLastBit) {
  const Scenario &scenario = GetParam().setup;
  const std::string folder = planFor("resume", GetParam().name);
  const std::string saved = folder + "/ck";
  // 6 is whole rounds for 1, 2 and 3 replicas.
  Outcome run = runTool(
      folder, training(6, {"--checkpoint", saved, "--checkpoint-every", "2"}));
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(contents(saved), testing::ElementsAre("step-00000006"));
  run = runTool(folder, training(11, {"--resume", saved, "--export",
                                      folder + "/t.onnx"}));
  ASSERT_EQ(run.code, 0) << run.errors;
  const Reference reference = train(scenario, 11);
  EXPECT_EQ(run.losses, reference.losses); // the file keeps steps 1 to 6
  const auto trained = readModel(folder + "/t.onnx");
  const auto names = weightNames(scenario);
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(trained.at(names[i]), reference.weights[i]) << names[i];
  for (int l = 0; l < kLayers; ++l)
    EXPECT_EQ(trained.at("mean" + std::to_string(l)), reference.means[l]);
}

TEST_P(EveryScenario, SavingDoesNotChangeTheTraining) {
  const std::string folder = planFor("saving", GetParam().name);
  const Outcome run = runTool(
      folder,
      training(9, {"--checkpoint", folder + "/ck", "--checkpoint-every", "1"}));
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.losses, train(GetParam().setup, 9).losses);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, EveryScenario,
                         testing::ValuesIn(scenarios()),
                         [](auto &info) { return info.param.name; });

/// Whoever forgets --resume does not lose what was saved.
TEST(Checkpoint, AnotherRunsCheckpointStays) {
  const std::string folder = planFor("stays", "two"), saved = folder + "/ck";
  ASSERT_EQ(runTool(folder, training(4, {"--checkpoint", saved})).code, 0);
  for (const std::string &resumed : {std::string(), saved + "2"}) {
    std::vector<std::string> words = {"--checkpoint", saved};
    if (!resumed.empty()) {
      fs::copy(saved, resumed, fs::copy_options::recursive);
      words.insert(words.end(), {"--resume", resumed});
    }
    const Outcome run = runTool(folder, training(6, words));
    EXPECT_EQ(run.code, 64);
    EXPECT_THAT(run.errors,
                testing::HasSubstr("holds step-00000004 of an earlier run"));
    EXPECT_THAT(run.errors, testing::HasSubstr("--resume " + saved));
    EXPECT_THAT(contents(saved), testing::ElementsAre("step-00000004"));
  }
  for (const std::string &resumed : {saved, saved + "/step-00000006"}) {
    const int steps = resumed == saved ? 6 : 8;
    EXPECT_EQ(runTool(folder, training(steps, {"--resume", resumed,
                                               "--checkpoint", saved}))
                  .code,
              0);
  }
  EXPECT_THAT(contents(saved), testing::ElementsAre("step-00000008"));
}

TEST(Checkpoint, MovesToAnotherNumberOfStages) {
  const Reference reference = train(scenarioNamed("one"), 8);
  const std::string first = planFor("move_from", "four");
  ASSERT_EQ(runTool(first, training(4, {"--checkpoint", first + "/ck"})).code,
            0);
  for (const char *name : {"one", "two_gpipe", "three_split", "chunks"}) {
    const std::string folder = planFor("move_to", name);
    const Outcome run =
        runTool(folder, training(8, {"--resume", first + "/ck"}));
    ASSERT_EQ(run.code, 0) << run.errors;
    EXPECT_EQ(run.losses, from(reference.losses, 4)) << name;
  }
}

TEST(Checkpoint, OfAStreamStaysOnItsPlan) {
  const std::string first = planFor("stream_from", "stream_four");
  ASSERT_EQ(runTool(first, training(4, {"--checkpoint", first + "/ck"})).code,
            0);
  const std::string other = planFor("stream_to", "stream_three");
  const Outcome run = runTool(other, training(8, {"--resume", first + "/ck"}));
  EXPECT_EQ(run.code, 78);
  EXPECT_THAT(run.errors, HasSubstr("resumes on its own plan only"));
}

TEST(Checkpoint, RefusesAPlanWithAnotherStep) {
  const std::string first = planFor("batch_from", "two");
  ASSERT_EQ(runTool(first, training(2, {"--checkpoint", first + "/ck"})).code,
            0);
  const std::string other = planFor("batch_to", "replicas_3_1");
  const Outcome run = runTool(other, training(8, {"--resume", first + "/ck"}));
  EXPECT_EQ(run.code, 78);
  EXPECT_THAT(run.errors, HasSubstr("was written by another plan: its "
                                    "microbatches is 4, the plan's is 6; "
                                    "resume it with the plan"));
}

TEST(Checkpoint, KeepsToTheOrderOfSamples) {
  const std::string folder = planFor("order", "two");
  const std::vector<std::string> shuffled = {"--shuffle", "7", "--checkpoint",
                                             folder + "/ck"};
  const Outcome whole = runTool(folder, training(8, {"--shuffle", "7"}));
  ASSERT_EQ(whole.code, 0);
  ASSERT_EQ(runTool(folder, training(4, shuffled)).code, 0);
  Outcome run = runTool(folder, training(8, {"--resume", folder + "/ck"}));
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(run.errors, HasSubstr("--shuffle 7"));
  fs::remove(folder + "/metrics.jsonl");
  run = runTool(folder,
                training(8, {"--resume", folder + "/ck", "--shuffle", "7"}));
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.losses, from(whole.losses, 4));
}

/// A two-rank checkpoint of step 4 in FOLDER/ck.
std::string savedTwo(const std::string &test) {
  const std::string folder = planFor(test, "two");
  EXPECT_EQ(runTool(folder, training(4, {"--checkpoint", folder + "/ck"})).code,
            0);
  return folder;
}

Outcome resume(const std::string &folder) {
  return runTool(folder, training(6, {"--resume", folder + "/ck"}));
}

TEST(Checkpoint, RefusesATruncatedShard) {
  const std::string folder = savedTwo("truncated");
  const std::string shard = folder + "/ck/step-00000004/rank-0001.safetensors";
  for (const uintmax_t size :
       {fs::file_size(shard) - 1, uintmax_t(100), uintmax_t(3), uintmax_t(0)}) {
    fs::resize_file(shard, size);
    const Outcome run = resume(folder);
    EXPECT_EQ(run.code, 78);
    EXPECT_THAT(run.errors, HasSubstr("rank-0001.safetensors"));
    EXPECT_THAT(run.errors, HasSubstr("truncated"));
  }
}

TEST(Checkpoint, RefusesAMissingShard) {
  const std::string folder = savedTwo("missing");
  fs::remove(folder + "/ck/step-00000004/rank-0000.safetensors");
  const Outcome run = resume(folder);
  EXPECT_EQ(run.code, 78);
  EXPECT_THAT(run.errors, HasSubstr("rank-0000.safetensors: is missing"));
}

TEST(Checkpoint, RefusesADamagedShard) {
  const std::string folder = savedTwo("damaged");
  const std::string shard = folder + "/ck/step-00000004/rank-0001.safetensors";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-5, std::ios::end);
  file.put('!');
  file.close();
  const Outcome run = resume(folder);
  EXPECT_EQ(run.code, 78);
  EXPECT_THAT(run.errors, HasSubstr("digest"));
}

TEST(Checkpoint, RefusesShardsOfDifferentSteps) {
  const std::string folder = savedTwo("mixed");
  ASSERT_EQ(
      runTool(folder, training(6, {"--checkpoint", folder + "/later"})).code,
      0);
  fs::copy_file(folder + "/later/step-00000006/rank-0001.safetensors",
                folder + "/ck/step-00000004/rank-0001.safetensors",
                fs::copy_options::overwrite_existing);
  const Outcome run = resume(folder);
  EXPECT_EQ(run.code, 78);
  EXPECT_THAT(run.errors, HasSubstr("a shard of step 6"));
}

TEST(Checkpoint, RefusesADamagedRecord) {
  const std::string folder = savedTwo("record");
  const std::string record = folder + "/ck/step-00000004/commit.json";
  const std::string good = readText(record);
  for (const std::string &text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
        good.substr(0, good.size() / 2)}) {
    std::ofstream(record) << text;
    EXPECT_EQ(resume(folder).code, 78) << text;
  }
  fs::remove(record);
  EXPECT_EQ(resume(folder).code, 78);
}

TEST(Checkpoint, SaysWhatDiffersFromItsPlan) {
  const std::string folder = savedTwo("another_model");
  const std::string record = folder + "/ck/step-00000004/commit.json";
  const auto json = nlohmann::json::parse(readText(record));
  const std::string name = json.at("model"), sha = json.at("model_sha256");
  auto other = json;
  other["model"] = "cnn.onnx", other["model_sha256"] = "0123456789abcdef";
  other["strategy"] = "pipedream", other["update"] = "round";
  other["versions"] = "stash", other["optimizer"] = "lion";
  std::ofstream(record) << other.dump();
  Outcome run = resume(folder);
  EXPECT_EQ(run.code, 78);
  EXPECT_THAT(
      run.errors,
      HasSubstr("was written by another plan: its strategy is "
                "pipedream, the plan's is " +
                json.at("strategy").get<std::string>() +
                ", and it is of the model 'cnn.onnx' (sha256 01234567), "
                "the plan of the model '" +
                name + "' (sha256 " + sha.substr(0, 8) +
                "), and its optimizer is lion, the plan's is "));
  // Written before a model's name was.
  other.erase("model");
  std::ofstream(record) << other.dump();
  run = resume(folder);
  EXPECT_EQ(run.code, 78);
  EXPECT_THAT(run.errors, HasSubstr("it is of the model (sha256 01234567), "));
}

TEST(Checkpoint, SaysWhenThereIsNone) {
  const std::string folder = planFor("none", "two");
  EXPECT_EQ(resume(folder).code, 66);
  fs::create_directories(folder + "/ck");
  const Outcome run = resume(folder);
  EXPECT_EQ(run.code, 66);
  EXPECT_THAT(run.errors, HasSubstr("no checkpoint"));
}

TEST(Checkpoint, IgnoresAndRemovesWhatAKilledRunLeft) {
  const std::string folder = savedTwo("leftover");
  fs::create_directories(folder + "/ck/.writing-00000005");
  std::ofstream(folder + "/ck/.writing-00000005/rank-0000.safetensors") << "x";
  const Outcome run =
      runTool(folder, training(6, {"--resume", folder + "/ck", "--checkpoint",
                                   folder + "/ck"}));
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(contents(folder + "/ck"), testing::ElementsAre("step-00000006"));
}

/// Only names that a run gives are checkpoints.
TEST(Checkpoint, LeavesWhatTheUserHasPutThere) {
  const std::string folder = savedTwo("users");
  for (const char *name :
       {"/ck/step-0.npy", "/ck/step-times", "/ck/.writing-x"})
    std::ofstream(folder + name) << "mine";
  const Outcome run =
      runTool(folder, training(6, {"--resume", folder + "/ck", "--checkpoint",
                                   folder + "/ck"}));
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(contents(folder + "/ck"),
              testing::ElementsAre(".writing-x", "step-0.npy", "step-00000006",
                                   "step-times"));
}

/// Runs with files limited to `bytes`: a write beyond fails, as on a full disk.
Outcome withFileLimit(const std::string &folder, rlim_t bytes,
                      const std::vector<std::string> &arguments) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{bytes, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  Outcome run = Process(toolCommand(folder, arguments), folder).wait();
  setrlimit(RLIMIT_FSIZE, &before);
  return run;
}

/// The last checkpoint is there, and the run goes on from it.
void expectIntact(const std::string &folder) {
  EXPECT_THAT(contents(folder + "/ck"), testing::ElementsAre("step-00000004"));
  const Outcome again = resume(folder);
  ASSERT_EQ(again.code, 0) << again.errors;
  EXPECT_EQ(from(again.losses, again.losses.size() - 2),
            from(train(scenarioNamed("two"), 6).losses, 4));
}

TEST(Checkpoint, AFailedWriteLeavesTheLastOneIntact) {
  const std::string folder = savedTwo("full");
  // Rank 0's shard (5 KiB) is too large, the metrics are not.
  const Outcome run =
      withFileLimit(folder, 3000,
                    {"--steps", "6", "--transport", "inproc", "--resume",
                     folder + "/ck", "--checkpoint", folder + "/ck"});
  EXPECT_EQ(run.code, 73) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("File too large"));
  expectIntact(folder);
}

TEST(Metrics, HaveWholeLinesWhereThereIsNoRoomForMore) {
  const std::string folder = savedTwo("full_metrics");
  const std::string path = folder + "/metrics.jsonl";
  Outcome run = withFileLimit(folder, 1000, training(100, {}));
  EXPECT_EQ(run.code, 73) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("cannot write " + path));
  readMetrics(path, run); // throws where a line is cut off
  EXPECT_GT(run.steps.size(), 5u);
  EXPECT_LT(run.steps.size(), 100u);
  EXPECT_THAT(readText(path), testing::EndsWith("}\n"));
  // A run that goes on keeps what is there, also with room for nothing.
  run = withFileLimit(folder, 150, training(6, {"--resume", folder + "/ck"}));
  EXPECT_EQ(run.code, 73) << run.errors;
  readMetrics(path, run);
  EXPECT_EQ(run.steps, (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(Metrics, ALineWithoutAnEndIsDropped) {
  const std::string folder = savedTwo("half_metrics");
  const std::string path = folder + "/metrics.jsonl";
  const std::string whole = readText(path);
  for (const std::string &half : {whole.substr(0, whole.find('\n')),
                                  whole.substr(0, whole.find('\n') + 3)}) {
    std::ofstream(path, std::ios::trunc) << half;
    Outcome run = runTool(folder, training(6, {"--resume", folder + "/ck"}));
    ASSERT_EQ(run.code, 0) << run.errors;
    const std::vector<int64_t> after = {5, 6};
    const bool ends = half.find('\n') != half.npos;
    EXPECT_EQ(run.steps, ends ? (std::vector<int64_t>{1, 5, 6}) : after);
  }
}

TEST(Checkpoint, AFullDiskLeavesTheLastOneIntact) {
  const std::string folder = savedTwo("full_disk");
  const std::string saved = folder + "/ck";
  fs::copy(saved, folder + "/copy", fs::copy_options::recursive);
  // Room for one checkpoint and a half.
  if (mount("none", saved.c_str(), "tmpfs", 0, "size=36k") != 0)
    GTEST_SKIP() << "mounting a small disk needs to be root";
  fs::copy(folder + "/copy", saved, fs::copy_options::recursive);
  for (const char *transport : {"inproc", "mpi"}) {
    const Outcome run =
        runTool(folder, {"--steps", "6", "--transport", transport, "--resume",
                         saved, "--checkpoint", saved});
    EXPECT_EQ(run.code, 73) << run.errors;
    EXPECT_THAT(run.errors,
                HasSubstr("cannot write " + saved +
                          ": No space left on device; free some space there, "
                          "or choose another place\n"));
    expectIntact(folder);
  }
  mount("none", saved.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=36k");
  const Outcome run =
      runTool(folder, {"--steps", "6", "--transport", "mpi", "--resume", saved,
                       "--checkpoint", saved});
  EXPECT_EQ(run.code, 73) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("Read-only file system; choose a place "
                                    "where this user may write"));
  expectIntact(folder);
  umount(saved.c_str());
}

TEST(Checkpoint, AFullDiskLeavesNoHalfExport) {
  const std::string folder = planFor("full_export", "two");
  const Outcome run = withFileLimit(folder, 3000,
                                    {"--steps", "2", "--transport", "inproc",
                                     "--export", folder + "/t.onnx"});
  EXPECT_EQ(run.code, 73) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("cannot write " + folder +
                                    "/t.onnx: File too large; "));
  EXPECT_FALSE(fs::exists(folder + "/t.onnx"));
  EXPECT_FALSE(anyHalfWritten(folder));
}

constexpr const char *kOutputs[] = {"--checkpoint", "--export", "--metrics",
                                    "--trace", "--profile-out"};

TEST(Checkpoint, FoldersOfAllOutputsAreMade) {
  const std::string folder = planFor("folders", "two");
  std::vector<std::string> arguments = {"--steps", "2", "--transport",
                                        "inproc"};
  for (const char *option : kOutputs)
    arguments.insert(arguments.end(),
                     {option, folder + "/new/" + (option + 2) + "/it"});
  std::vector<std::string> command = {PIPEC_RUN, folder};
  command.insert(command.end(), arguments.begin(), arguments.end());
  for (const std::string &argument : dataArguments(folder))
    command.push_back(argument);
  const Outcome run = Process(command, folder).wait();
  ASSERT_EQ(run.code, 0) << run.errors;
  for (const char *option : kOutputs)
    EXPECT_THAT(contents(folder + "/new/" + (option + 2)),
                testing::ElementsAre("it"));
}

TEST(Checkpoint, SaysWhereItCannotWrite) {
  const std::string folder = planFor("unwritable", "two");
  for (const char *option : kOutputs) {
    std::vector<std::string> command = {
        PIPEC_RUN,     folder,   "--steps", "2",
        "--transport", "inproc", option,    "/proc/nowhere/file"};
    for (const std::string &argument : dataArguments(folder))
      command.push_back(argument);
    const Outcome run = Process(command, folder).wait();
    EXPECT_EQ(run.code, 73) << option << run.errors;
    EXPECT_THAT(run.errors, HasSubstr("cannot write /proc/nowhere/file: "));
  }
}

/// In /proc root may write, says access, and cannot.
TEST(Checkpoint, WhatCannotBeWrittenIsSaidBeforeTheTraining) {
  const std::string folder = planFor("unwritable_later", "two");
  for (const char *option :
       {"--checkpoint", "--export", "--trace", "--profile-out"}) {
    const Outcome run = runTool(
        folder, {"--steps", "2", "--transport", "inproc", option, "/proc/it"});
    EXPECT_EQ(run.code, 73) << option << run.errors;
    EXPECT_THAT(run.errors, HasSubstr("cannot write /proc/it: "));
    EXPECT_THAT(run.losses, testing::IsEmpty()) << option;
  }
  // To try leaves nothing.
  const Outcome run = runTool(
      folder, {"--steps", "2", "--transport", "inproc", "--checkpoint",
               folder + "/ck", "--export", folder + "/t.onnx", "--trace",
               folder + "/t.json", "--profile-out", "/proc/it"});
  EXPECT_EQ(run.code, 73) << run.errors;
  EXPECT_FALSE(anyHalfWritten(folder));
  EXPECT_FALSE(fs::exists(folder + "/ck"));
}

TEST(Checkpoint, AStopIsACheckpointAndCode75) {
  for (const char *name : {"two", "stream_3_1"})
    for (const char *transport : {"inproc", "mpi"}) {
      const std::string folder = planFor("stop", name);
      const std::string saved = folder + "/ck";
      Process process(toolCommand(folder, {"--steps", "5000", "--transport",
                                           transport, "--checkpoint", saved}),
                      folder, {"PIPEC_TEST_SLEEP_US=2000"});
      while (readText(folder + "/metrics.jsonl").size() < 300 &&
             process.running())
        usleep(2000);
      kill(process.pid(), std::string(name) == "two" ? SIGTERM : SIGUSR1);
      Outcome run = process.wait(30);
      ASSERT_EQ(run.code, 75) << run.errors;
      EXPECT_THAT(run.errors, HasSubstr("go on with --resume " + saved));
      readMetrics(folder + "/metrics.jsonl", run);
      const size_t done = run.losses.size();
      ASSERT_LT(done, 5000u);
      EXPECT_EQ(contents(saved).size(), 1u);
      run = runTool(folder, {"--steps", std::to_string(done + 4), "--transport",
                             transport, "--resume", saved});
      ASSERT_EQ(run.code, 0) << run.errors;
      EXPECT_EQ(run.losses, train(scenarioNamed(name), done + 4).losses);
    }
}

} // namespace
} // namespace pipec::test
