//===- ToolTest.cpp - the command line, and what a run leaves -------------===//
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

namespace pipec::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

Outcome tool(const std::vector<std::string> &arguments) {
  std::vector<std::string> command = {PIPEC_RUN};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return Process(command, freshFolder("tool")).wait();
}

std::string planFor(const std::string &scenario) {
  const std::string folder = freshFolder("plan_" + scenario);
  writePlan(scenarioNamed(scenario), folder);
  return folder;
}

TEST(Tool, AnswersHelpAndVersion) {
  const Outcome help = tool({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char *option :
       {"--data", "--steps", "--shuffle", "--metrics", "--trace",
        "--checkpoint", "--checkpoint-every", "--resume", "--export",
        "--oracle", "--verify", "--lr-schedule", "--timeout", "--transport",
        "--quiet", "--format", "inproc", "mpi", "cosine"})
    EXPECT_THAT(help.output, HasSubstr(option));
  EXPECT_TRUE(help.errors.empty());
  const Outcome version = tool({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.output, HasSubstr("pipec-run "));
}

TEST(Tool, WrongUsageIs64AndOneLine) {
  const std::string plan = planFor("two");
  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{
           {},
           {plan},
           {plan, "--steps", "0"},
           {plan, "--steps", "-3"},
           {plan, "--steps", "many"},
           {plan, "--steps", "2", "--frobnicate"},
           {plan, "--steps", "2", "extra"},
           {plan, "--steps", "2", "--data", "x"},
           {plan, "--steps", "2", "--data", "=x"},
           {plan, "--steps", "2", "--data", "x=1", "--data", "x=2"},
           {plan, "--steps", "2"},
           {plan, "--steps", "2", "--data", "y=f.npy"},
           {plan, "--steps", "2", "--transport", "pigeon"},
           {plan, "--steps", "2", "--timeout", "0"},
           {plan, "--steps", "2", "--checkpoint-every", "3"},
           {plan, "--steps", "2", "--checkpoint", "d", "--checkpoint-every",
            "0"},
           {plan, "--steps", "2", "--threads", "0"},
           {plan, "--steps", "2", "--lr-schedule", "zigzag"},
           {plan, "--steps", "2", "--shuffle", "x"},
           {plan, "--steps", "2", "--oracle", "--verify"},
           {plan, "--steps", "2", "--oracle", "--checkpoint", "d"},
           {plan, "--steps", "2", "--format", "xml"}}) {
    const Outcome run = tool(arguments);
    EXPECT_EQ(run.code, 64) << testing::PrintToString(arguments) << run.errors;
    EXPECT_EQ(std::count(run.errors.begin(), run.errors.end(), '\n'), 1)
        << run.errors;
    EXPECT_THAT(run.errors, testing::StartsWith("pipec-run: error: "));
  }
}

TEST(Tool, MissingFilesAre66) {
  EXPECT_EQ(tool({"/nowhere", "--steps", "1"}).code, 66);
  const std::string plan = planFor("two");
  const Outcome run =
      tool({plan, "--steps", "1", "--data", "x=/nowhere.npy", "--data",
            "target=/nowhere.npy", "--data", "label=/nowhere.npy"});
  EXPECT_EQ(run.code, 66);
  EXPECT_THAT(run.errors, HasSubstr("/nowhere.npy"));
}

/// Runs a plan after a change of its plan.json.
Outcome changed(const std::function<void(plan::Plan &)> &change) {
  const std::string folder = freshFolder("changed");
  plan::Plan plan = writePlan(scenarioNamed("two"), folder);
  change(plan);
  std::ofstream(folder + "/plan.json") << plan::toJson(plan);
  return runTool(folder, {"--steps", "1"});
}

TEST(Tool, SaysWhatItCannotRun) {
  Outcome run = changed([](plan::Plan &plan) { plan.cluster.kind = "cuda"; });
  EXPECT_EQ(run.code, 69);
  EXPECT_THAT(run.errors, HasSubstr("--cpus"));
  run = changed([](plan::Plan &plan) {
    plan.stages[1].computes_loss = false;
    plan.ranks[1].other_bytes -= 64;
    plan.ranks[1].peak_bytes -= 64;
  });
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(run.errors, HasSubstr("no loss"));
  run = changed([](plan::Plan &plan) {
    const int64_t huge = int64_t(1) << 43;
    plan.stages[0].regions["workspace"].bytes += huge;
    plan.ranks[0].workspace_bytes += huge;
    plan.ranks[0].peak_bytes += huge;
  });
  EXPECT_EQ(run.code, 79);
  EXPECT_THAT(run.errors, HasSubstr("bytes together"));
}

TEST(Tool, ExportNeverOverwritesTheModel) {
  const std::string plan = planFor("two");
  const std::string before = readText(plan + "/model.onnx");
  fs::create_symlink(plan + "/model.onnx", plan + "/link.onnx");
  for (const char *name : {"/model.onnx", "/link.onnx", "/./model.onnx"}) {
    const Outcome run = runTool(plan, {"--steps", "1", "--transport", "inproc",
                                       "--export", plan + name});
    EXPECT_EQ(run.code, 64);
    EXPECT_THAT(run.errors, HasSubstr("would overwrite"));
  }
  EXPECT_EQ(readText(plan + "/model.onnx"), before);
}

TEST(Tool, NoFileIsWrittenTwice) {
  const std::string plan = planFor("two");
  const Outcome run =
      runTool(plan, {"--steps", "1", "--transport", "inproc", "--trace",
                     plan + "/it", "--export", plan + "/it"});
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(run.errors,
              HasSubstr("--export " + plan +
                        "/it: --trace writes it, too; give another name"));
  EXPECT_FALSE(fs::exists(plan + "/it"));
}

/// A remark, and then an array that is not there.
TEST(Tool, NotesAreInTheJsonOfAnError) {
  const std::string plan = planFor("two");
  std::vector<std::string> command = {PIPEC_RUN, plan, "--steps", "1"};
  for (const std::string &argument : dataArguments(plan)) {
    command.push_back(argument);
    if (const size_t at = argument.find('='); at != argument.npos)
      command.back() = argument.substr(0, at + 1) + plan + "/missing.npy";
  }
  Outcome run = Process(command, plan, {"RANK=0"}).wait();
  EXPECT_EQ(run.code, 66);
  EXPECT_THAT(run.errors,
              testing::StartsWith("pipec-run: note: RANK=0 means nothing"));
  command.insert(command.end(), {"--format", "json"});
  run = Process(command, plan, {"RANK=0"}).wait();
  EXPECT_EQ(run.code, 66);
  const json report = json::parse(run.errors, nullptr, false);
  ASSERT_TRUE(report.is_object()) << run.errors;
  EXPECT_EQ(report["exit"], 66);
  ASSERT_EQ(report["notes"].size(), 1);
  EXPECT_THAT(report["notes"][0].get<std::string>(),
              testing::StartsWith("RANK=0 means nothing without WORLD_SIZE"));
}

/// The first process has a remark, a rank of another one the error: stderr is
/// one object all the same.
TEST(Tool, NoTextBesideTheJsonOfAnotherProcess) {
  const std::string plan = planFor("two");
  std::vector<std::string> command = dataArguments(plan);
  command.insert(command.begin(), {PIPEC_RUN, plan});
  command.insert(command.end(), {"--steps", "1", "--transport", "auto"});
  fs::remove(plan + "/model.onnx");
  Outcome run = Process(command, plan, {"RANK=0"}).wait();
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(run.errors, HasSubstr("pipec-run: note: RANK=0 means nothing"));
  command.insert(command.end(), {"--format", "json"});
  run = Process(command, plan, {"RANK=0"}).wait();
  const json report = json::parse(run.errors, nullptr, false);
  ASSERT_TRUE(report.is_object()) << run.errors;
  EXPECT_EQ(report["exit"], run.code);
}

TEST(Tool, NothingThatIsReadIsWritten) {
  const std::string plan = planFor("two");
  const std::string data = dataArguments(plan)[1];
  const std::string array = data.substr(data.find('=') + 1);
  for (const char *option : {"--metrics", "--trace", "--profile-out"})
    for (const std::string &file :
         {array, plan + "/./plan.json", plan + "/model.onnx",
          plan + "/" + plan::readPlan(plan).stages[0].library}) {
      const std::string before = readText(file);
      std::vector<std::string> words = dataArguments(plan);
      words.insert(words.begin(), plan);
      words.insert(words.end(),
                   {"--steps", "1", "--transport", "inproc", option, file});
      const Outcome run = tool(words);
      EXPECT_EQ(run.code, 64) << file;
      EXPECT_THAT(run.errors, HasSubstr(std::string(option) + " " + file +
                                        ": would overwrite "));
      EXPECT_THAT(run.errors, HasSubstr(", which is read; give another name"));
      EXPECT_EQ(readText(file), before);
    }
}

TEST(Tool, MetricsAreAsDocumented) {
  const std::string plan = planFor("two");
  const Outcome run = runTool(plan, {"--steps", "3", "--transport", "inproc"});
  ASSERT_EQ(run.code, 0);
  // With --quiet the result is what is left.
  EXPECT_THAT(run.output,
              testing::MatchesRegex("3 steps, final loss [0-9.e-]+\n"));
  EXPECT_EQ(run.errors, "");
  std::ifstream file(plan + "/metrics.jsonl");
  std::string line;
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(std::getline(file, line));
    const json entry = json::parse(line);
    EXPECT_EQ(entry["step"], step);
    for (const char *key : {"loss", "seconds", "samples_per_s"})
      EXPECT_TRUE(entry[key].is_number());
  }
  ASSERT_TRUE(std::getline(file, line));
  const json summary = json::parse(line)["summary"];
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_EQ(summary["predicted_step_s"], 0.001);
  EXPECT_GT(summary["step_s"], 0);
  ASSERT_EQ(summary["ranks"].size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    const json &entry = summary["ranks"][rank];
    EXPECT_EQ(entry["rank"], rank);
    EXPECT_GT(entry["peak_bytes"], 1000);
    EXPECT_EQ(entry["peak_bytes"], entry["predicted_peak_bytes"]);
    EXPECT_GT(entry["busy_s"], 0);
    EXPECT_GT(entry["rss_bytes"], entry["peak_bytes"]);
  }
  EXPECT_FALSE(std::getline(file, line));
}

TEST(Tool, SummaryIsTextOrJson) {
  const std::string plan = planFor("two");
  std::vector<std::string> command = {PIPEC_RUN, plan,          "--steps",
                                      "2",       "--transport", "inproc"};
  for (const std::string &argument : dataArguments(plan))
    command.push_back(argument);
  const Outcome text = Process(command, plan).wait();
  EXPECT_THAT(text.output, HasSubstr("2 steps, final loss"));
  EXPECT_THAT(text.output, HasSubstr("predicted"));
  command.insert(command.end(), {"--format", "json"});
  const Outcome machine = Process(command, plan).wait();
  EXPECT_EQ(json::parse(machine.output)["steps"], 2);
  command.emplace_back("--oracle");
  EXPECT_EQ(json::parse(Process(command, plan).wait().output)["steps"], 2);
}

TEST(Tool, TheReportShowsTheRun) {
  const std::string plan = planFor("two");
  ASSERT_EQ(runTool(plan, {"--steps", "4", "--transport", "inproc"}).code, 0);
  EXPECT_THAT(readText(plan + "/report.html"), HasSubstr("measured"));
}

TEST(Tool, TraceHasEveryTaskMeasuredAndPredicted) {
  for (const char *name : {"four", "stream_2_1"}) {
    const std::string plan = planFor(name);
    const std::string path = plan + "/trace.json";
    const int steps = 6;
    const Outcome run =
        runTool(plan, {"--steps", std::to_string(steps), "--transport",
                       "inproc", "--trace", path});
    ASSERT_EQ(run.code, 0) << run.errors;
    const json trace = json::parse(readText(path));
    const Scenario &scenario = scenarioNamed(name);
    std::map<std::pair<int, int>, int> forwards; // (rank, row) -> count
    std::map<std::string, int> names;
    for (const json &event : trace["traceEvents"]) {
      ++names[event["name"]];
      if (event["ph"] != "X")
        continue;
      EXPECT_GE(event["ts"], 0);
      EXPECT_GE(event["dur"], 0);
      if (event["cat"] == "forward")
        ++forwards[{event["pid"], event["tid"]}];
    }
    int measured = 0, predicted = 0;
    for (auto &[place, count] : forwards)
      (place.second == 0 ? measured : predicted) += count;
    EXPECT_EQ(measured, steps * scenario.microbatches * scenario.stages());
    EXPECT_GT(predicted, 0);
    EXPECT_EQ(names["process_name"],
              static_cast<int>(run.summary["ranks"].size()));
    EXPECT_GT(names["update"], 0);
  }
}

TEST(Tool, ResumedMetricsFollowOnTheOld) {
  const std::string plan = planFor("two");
  const std::string saved = plan + "/ck";
  ASSERT_EQ(runTool(plan, {"--steps", "4", "--transport", "inproc",
                           "--checkpoint", saved, "--checkpoint-every", "3"})
                .code,
            0);
  fs::remove_all(saved + "/step-00000004");
  ASSERT_EQ(runTool(plan, {"--steps", "3", "--transport", "inproc",
                           "--checkpoint", saved})
                .code,
            0);
  // The file has steps 1 to 3 and a summary; going on drops the summary.
  const Outcome run = runTool(
      plan, {"--steps", "5", "--transport", "inproc", "--resume", saved});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.steps, (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST(Tool, NumberedRanksMustMakeSense) {
  const std::string plan = planFor("two");
  const auto joined = [&](const std::string &rank, const std::string &size) {
    return runTool(plan,
                   {"--steps", "1", "--transport", "tcp", "--timeout", "1"},
                   {"RANK=" + rank, "WORLD_SIZE=" + size,
                    "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29471"});
  };
  Outcome run = joined("first", "2");
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(run.errors, HasSubstr("RANK is 'first', not a whole number"));
  run = joined("2", "2");
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(run.errors,
              HasSubstr("RANK=2 and WORLD_SIZE=2 make no sense together"));
  run = joined("1", "3");
  EXPECT_EQ(run.code, 64); // at once
  EXPECT_THAT(run.errors, HasSubstr("WORLD_SIZE is 3, the plan has 2 ranks: "
                                    "start 2 processes"));
  run = joined("0", "2");
  EXPECT_EQ(run.code, 69);
  EXPECT_THAT(run.errors, HasSubstr("within --timeout 1 s 1 of 2 ranks have "
                                    "connected, without rank 1; have all ranks "
                                    "been started, does one of them say why it "
                                    "ended, and is --timeout long enough for "
                                    "the last to come?"));
}

TEST(Tool, ARankThatFindsNoRankZeroSaysWhatItTries) {
  const std::string plan = planFor("two");
  std::vector<std::string> command = {PIPEC_RUN,     plan,  "--steps",   "1",
                                      "--transport", "tcp", "--timeout", "4"};
  for (const std::string &argument : dataArguments(plan))
    command.push_back(argument);
  const std::vector<std::string> environment = {
      "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29473"};
  Outcome run = Process(command, plan, environment).wait();
  EXPECT_EQ(run.code, 69);
  EXPECT_THAT(run.errors,
              HasSubstr("note: rank 0 does not answer yet (127.0.0.1:29473: "
                        "Connection refused); trying for another "));
  EXPECT_THAT(run.errors,
              HasSubstr("rank 0 did not answer within --timeout 4 s "
                        "(127.0.0.1:29473: Connection refused); does it run "
                        "there, can this host reach that port, and are "
                        "MASTER_ADDR and MASTER_PORT"));
  command.push_back("--quiet");
  run = Process(command, plan, environment).wait();
  EXPECT_EQ(run.code, 69);
  EXPECT_THAT(run.errors, Not(HasSubstr("note: ")));
}

TEST(Tool, OneOfSeveralProcessesRunsNotAllRanks) {
  const std::string plan = planFor("two");
  const auto with = [&](const std::string &transport,
                        const std::vector<std::string> &environment) {
    return runTool(plan, {"--steps", "1", "--transport", transport},
                   environment);
  };
  Outcome run =
      with("tcp", {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1"});
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(
      run.errors,
      HasSubstr("OMPI_COMM_WORLD_SIZE=2: a launcher has started 2 of this "
                "process, but --transport tcp finds no rank in its "
                "environment; set RANK, WORLD_SIZE, MASTER_ADDR and "
                "MASTER_PORT for each of them, as torchrun does, or leave out "
                "--transport"));
  run = with("auto", {"SLURM_STEP_NUM_TASKS=4"});
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(run.errors,
              HasSubstr("or start them with mpirun or srun --mpi=pmix"));
  EXPECT_EQ(with("inproc", {"SLURM_STEP_NUM_TASKS=4"}).code, 0);
  EXPECT_EQ(with("tcp", {"SLURM_STEP_NUM_TASKS=1"}).code, 0);
}

TEST(Tool, EverythingThatIsMissingIsSaidAtOnce) {
  const Outcome run = Process({PIPEC_RUN, planFor("two")}, ".").wait();
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(run.errors,
              HasSubstr("say how long to train, with --steps N, and "
                        "on what: --data x=FILE.npy --data "));
}

TEST(Tool, HalfAJobIsNotRunAlone) {
  const std::string plan = planFor("two");
  const auto with = [&](const std::string &transport,
                        const std::vector<std::string> &environment) {
    return runTool(plan, {"--steps", "1", "--transport", transport},
                   environment);
  };
  const std::string numbers = "RANK and WORLD_SIZE are set, MASTER_ADDR and "
                              "MASTER_PORT are not: set all four";
  for (const char *transport : {"auto", "tcp"}) {
    Outcome run = with(transport, {"RANK=1", "WORLD_SIZE=2"});
    EXPECT_EQ(run.code, 64) << transport;
    EXPECT_THAT(run.errors, HasSubstr(numbers));
    run = with(transport, {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"});
    EXPECT_EQ(run.code, 64) << transport;
    EXPECT_THAT(run.errors, HasSubstr("MASTER_ADDR are set, MASTER_PORT is "
                                      "not: set all four"));
  }
  // What has forgotten to say how many there are.
  Outcome forgotten =
      with("auto", {"RANK=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"});
  EXPECT_EQ(forgotten.code, 64);
  EXPECT_THAT(forgotten.errors, HasSubstr("WORLD_SIZE is not: set all four"));
  const Outcome run = with("tcp", {"WORLD_SIZE=2"});
  EXPECT_EQ(run.code, 64);
  EXPECT_THAT(run.errors, HasSubstr("WORLD_SIZE is set, RANK and MASTER_ADDR "
                                    "and MASTER_PORT are not"));
  // Of no meaning here: another transport is asked for, one of them alone, a
  // job of one process, an address alone.
  EXPECT_EQ(with("inproc", {"RANK=1", "WORLD_SIZE=2"}).code, 0);
  const auto loud = [&](const std::vector<std::string> &environment) {
    std::vector<std::string> command = toolCommand(plan, {"--steps", "1"});
    std::erase(command, "--quiet");
    return Process(command, plan, environment).wait();
  };
  for (const auto &[variable, others] :
       {std::pair("RANK=0", "WORLD_SIZE"), std::pair("WORLD_SIZE=2", "RANK")}) {
    EXPECT_EQ(with("auto", {variable}).errors, "");
    const Outcome alone = loud({variable});
    EXPECT_EQ(alone.code, 0);
    EXPECT_EQ(alone.errors, "pipec-run: note: " + std::string(variable) +
                                " means nothing without " + others +
                                ", MASTER_ADDR and MASTER_PORT: this process "
                                "starts all 2 ranks, here\n");
  }
  EXPECT_EQ(loud({"WORLD_SIZE=1"}).errors, "");
  // All of them, and another transport than the one they are for.
  const Outcome other =
      with("mpi", {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                   "MASTER_PORT=29471"});
  EXPECT_EQ(other.code, 64);
  EXPECT_EQ(other.errors,
            "pipec-run: error: WORLD_SIZE=2: a launcher has started 2 of this "
            "process, but --transport mpi finds no rank in its environment; "
            "leave out --transport; each as a job of its own: --transport "
            "inproc\n");
  EXPECT_EQ(with("auto", {"RANK=0", "WORLD_SIZE=1"}).code, 0);
  EXPECT_EQ(with("tcp", {"MASTER_ADDR=127.0.0.1"}).code, 0);
}

TEST(Tool, OptionsSayWhatTheyTake) {
  const std::string plan = planFor("two");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--transport", "foo"}, "takes auto, inproc, mpi, tcp, nccl, not 'foo'"},
      {{"--seed", "-1"}, "must be a whole number from 0 to "},
      {{"--shuffle", "abc"}, "18446744073709551615, not 'abc'"}};
  for (const auto &[arguments, message] : cases) {
    const Outcome run = runTool(plan, arguments);
    EXPECT_EQ(run.code, 64) << run.errors;
    EXPECT_THAT(run.errors, HasSubstr(message));
  }
}

TEST(Tool, RanksOfAnotherPlanAreTurnedAway) {
  const std::vector<std::string> arguments = {
      "--steps", "1", "--transport", "tcp", "--timeout", "20"};
  const auto environment = [](const std::string &rank) {
    return std::vector<std::string>{"RANK=" + rank, "WORLD_SIZE=2",
                                    "MASTER_ADDR=127.0.0.1",
                                    "MASTER_PORT=29472"};
  };
  const std::string mine = planFor("two"), other = planFor("two_gpipe");
  Process first(toolCommand(mine, arguments), mine, environment("0"));
  Process second(toolCommand(other, arguments), other, environment("1"));
  const Outcome run = first.wait();
  EXPECT_EQ(run.code, 69) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("a process with another plan"));
  EXPECT_NE(second.wait().code, 0);
}

TEST(Tool, FewSamplesAreNoted) {
  const std::string plan = planFor("two"); // steps of 16 samples
  for (const char *name : {"x", "target", "label"}) {
    std::string file = readText(plan + "/" + name + ".npy");
    file.replace(file.find("(23,"), 4, "(8, ");
    std::ofstream(plan + "/" + name + ".npy") << file;
  }
  std::vector<std::string> command = {PIPEC_RUN, plan,          "--steps",
                                      "1",       "--transport", "inproc"};
  for (const std::string &argument : dataArguments(plan))
    command.push_back(argument);
  const Outcome run = Process(command, plan).wait();
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.errors, HasSubstr("note: a step takes 16 samples (4 "
                                    "microbatches of 4), the data has 8"));
}

TEST(Tool, AnotherPrecisionIsNoted) {
  const std::string folder = freshFolder("precision");
  plan::Plan plan = writePlan(scenarioNamed("two"), folder);
  std::vector<std::string> command = {PIPEC_RUN, folder,        "--steps",
                                      "1",       "--transport", "inproc"};
  for (const std::string &argument : dataArguments(folder))
    command.push_back(argument);
  std::vector<std::string> resumed = command;
  command.insert(command.end(), {"--checkpoint", folder + "/ck"});
  resumed.insert(resumed.end(), {"--resume", folder + "/ck"});
  ASSERT_EQ(Process(command, folder).wait().code, 0);
  const Outcome same = Process(resumed, folder).wait();
  EXPECT_EQ(same.code, 0) << same.errors;
  EXPECT_THAT(same.errors, testing::Not(HasSubstr("precision")));
  plan.training.precision = "bf16";
  std::ofstream(folder + "/plan.json") << plan::toJson(plan);
  EXPECT_THAT(Process(resumed, folder).wait().errors,
              HasSubstr("note: the checkpoint was trained with --precision "
                        "fp32, the plan goes on with bf16"));
  command.back() = resumed.back() = folder + "/rounded";
  ASSERT_EQ(Process(command, folder).wait().code, 0);
  plan.training.precision = "fp32";
  std::ofstream(folder + "/plan.json") << plan::toJson(plan);
  EXPECT_THAT(Process(resumed, folder).wait().errors,
              HasSubstr("note: the checkpoint was trained with --precision "
                        "bf16, the plan goes on with fp32"));
}

TEST(Tool, RanksShareTheCores) {
  const std::string plan = planFor("two");
  auto threads = [&](const std::string &transport,
                     const std::vector<std::string> &more,
                     std::vector<std::string> environment) {
    fs::remove(plan + "/threads");
    std::vector<std::string> arguments = {"--steps", "1", "--transport",
                                          transport};
    arguments.insert(arguments.end(), more.begin(), more.end());
    environment.push_back("PIPEC_TEST_THREADS=" + plan + "/threads");
    EXPECT_EQ(runTool(plan, arguments, environment).code, 0);
    return readText(plan + "/threads");
  };
  unsetenv("OMP_NUM_THREADS");
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  const std::string share =
      std::to_string(std::max(1, CPU_COUNT(&cores) / 2)) + " ";
  for (const char *transport : {"inproc", "mpi"}) {
    EXPECT_EQ(threads(transport, {}, {}), share + share);
    EXPECT_EQ(threads(transport, {"--threads", "3"}, {}), "3 3 ");
    EXPECT_EQ(threads(transport, {}, {"OMP_NUM_THREADS=5"}), "5 5 ");
    EXPECT_EQ(threads(transport, {"--threads", "3"}, {"OMP_NUM_THREADS=5"}),
              "3 3 ");
  }
}

} // namespace
} // namespace pipec::test
