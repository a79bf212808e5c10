//===- FaultTest.cpp - ranks that die or stop -----------------------------===//
//
// Real processes and signals: wherever a rank is lost, the others end with code
// 76 within the timeout and say what they waited for, nothing remains, and the
// last checkpoint goes on to the same losses.
//
//===----------------------------------------------------------------------===//
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <random>
#include <unistd.h>

namespace pipec::test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

/// Processes of which an argument names the folder.
std::vector<pid_t> processesOf(const std::string &folder,
                               const std::string &program = "") {
  std::vector<pid_t> found;
  for (const auto &entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos)
      continue;
    const std::string line = readText(entry.path().string() + "/cmdline");
    if (line.find(folder + '\0') == std::string::npos)
      continue;
    if (program.empty() ||
        fs::path(line.substr(0, line.find('\0'))).filename() == program)
      found.push_back(std::stoi(name));
  }
  return found;
}

/// True when all of them are gone soon.
bool allGone(const std::string &folder) {
  for (int i = 0; i < 200; ++i) {
    if (processesOf(folder).empty())
      return true;
    usleep(10000);
  }
  return false;
}

bool isStopped(pid_t pid) {
  return readText("/proc/" + std::to_string(pid) + "/stat").find(") T ") !=
         std::string::npos;
}

/// Waits until a rank is stopped or the first of them is gone; seconds since
/// the process was started. None when the job ended without either.
std::optional<double> secondsUntilALoss(const std::string &folder,
                                        Process &process) {
  size_t most = 0;
  while (process.running()) {
    const std::vector<pid_t> ranks = processesOf(folder, "pipec-run");
    if (ranks.size() < most)
      return process.age();
    most = ranks.size();
    for (pid_t pid : ranks)
      if (isStopped(pid))
        return process.age();
    usleep(5000);
  }
  return std::nullopt;
}

struct Place {
  const char *phase;
  const char *scenario;
  const char *fault; ///< first layer of the stage, task, step, microbatch
  const char *lost;  ///< who is named
};

const Place kPlaces[] = {
    {"warm-up of the first step, first rank", "four", "0 F 0 1",
     "rank 0 (stage 0)"},
    {"warm-up, last rank", "four", "3 F 3 0", "rank 3 (stage 3)"},
    {"steady, second rank", "four", "1 B 3 1", "rank 1 (stage 1)"},
    {"drain, third rank", "four", "2 B 3 3", "rank 2 (stage 2)"},
    {"update, first rank", "four", "0 U 3 0", "rank 0 (stage 0)"},
    {"stream, second rank", "stream_four", "1 B 5 0", "rank 1 (stage 1)"},
    {"a replica", "stream_1_2_1", "3 F 5 0", "rank 3 (stage 2)"},
};

class EveryPlace : public testing::TestWithParam<Place> {};

/// Of the newest checkpoint, which its name says.
int stepsIn(const std::string &folder) {
  int newest = 0;
  for (const auto &entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (const size_t at = name.find_first_of("0123456789"); at != name.npos)
      newest = std::max(newest, std::stoi(name.substr(at)));
  }
  return newest;
}

void loseARank(const Place &place, int signal, double timeout,
               const std::string &transport = "mpi") {
  const std::string folder = freshFolder("fault");
  const Scenario &scenario = scenarioNamed(place.scenario);
  writePlan(scenario, folder);
  const std::string saved = folder + "/ck";
  std::vector<std::string> arguments = {"--steps",
                                        "8",
                                        "--transport",
                                        transport,
                                        "--timeout",
                                        std::to_string(timeout),
                                        "--checkpoint",
                                        saved,
                                        "--checkpoint-every",
                                        "2"};
  Process process(toolCommand(folder, arguments), folder,
                  {std::string("PIPEC_TEST_FAULT=") + place.fault + " " +
                   std::to_string(signal)});
  const std::optional<double> before = secondsUntilALoss(folder, process);
  const Outcome run = process.wait();
  EXPECT_EQ(run.code, 76) << run.errors;
  ASSERT_TRUE(before) << "the fault was not seen: " << run.errors;
  EXPECT_LT(run.seconds - *before, timeout);
  EXPECT_THAT(run.errors, HasSubstr(place.lost));
  EXPECT_THAT(run.errors,
              AnyOf(HasSubstr("was waiting for"), HasSubstr("was waiting to")));
  EXPECT_TRUE(allGone(folder));
  if (!fs::exists(saved))
    return; // lost before the first checkpoint
  const std::string steps = std::to_string(stepsIn(saved));
  if (!std::string_view(place.lost).starts_with("rank 0")) // who would say it
    EXPECT_THAT(run.errors, HasSubstr("; go on with --resume " + saved +
                                      ", which has " + steps + " steps"));
  arguments.insert(arguments.end(), {"--resume", saved});
  const Outcome again = runTool(folder, arguments);
  ASSERT_EQ(again.code, 0) << again.errors;
  EXPECT_EQ(again.losses, train(scenario, 8).losses);
}

TEST_P(EveryPlace, ADeadRankEndsTheJob) { loseARank(GetParam(), SIGKILL, 30); }

TEST_P(EveryPlace, AStoppedRankEndsTheJob) {
  loseARank(GetParam(), SIGSTOP, 3);
}

TEST(Fault, OverSocketsToo) {
  loseARank(kPlaces[2], SIGKILL, 30, "tcp");
  loseARank(kPlaces[2], SIGSTOP, 3, "tcp");
}

/// Starts ranks as torchrun does: numbered by variables.
std::unique_ptr<Process> numbered(const std::string &folder, int rank,
                                  const std::vector<std::string> &arguments,
                                  std::vector<std::string> environment = {}) {
  const std::string own = folder + "/" + std::to_string(rank);
  fs::create_directories(own);
  for (const std::string &variable :
       {"RANK=" + std::to_string(rank), std::string("WORLD_SIZE=4"),
        std::string("MASTER_ADDR=127.0.0.1"),
        "MASTER_PORT=" + std::to_string(20000 + getpid() % 20000)})
    environment.push_back(variable);
  return std::make_unique<Process>(toolCommand(folder, arguments), own,
                                   environment);
}

std::vector<std::unique_ptr<Process>>
fourNumbered(const std::string &folder,
             const std::vector<std::string> &arguments,
             const std::vector<std::string> &environment = {}) {
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.push_back(numbered(folder, rank, arguments, environment));
  return ranks;
}

TEST(Fault, ProcessesThatAreOnlyNumberedFindEachOther) {
  const std::string folder = freshFolder("numbered");
  writePlan(scenarioNamed("four"), folder);
  Outcome run;
  for (auto &rank : fourNumbered(folder, {"--steps", "8"}))
    EXPECT_EQ((run = rank->wait(60)).code, 0) << run.errors;
  readMetrics(folder + "/metrics.jsonl", run);
  EXPECT_EQ(run.losses, train(scenarioNamed("four"), 8).losses);

  // Late enough that beats of older steps lie behind.
  auto ranks = fourNumbered(folder, {"--steps", "1500", "--timeout", "20"},
                            {"PIPEC_TEST_FAULT=2 B 1499 1 9"});
  int named = 0;
  for (int rank = 0; rank < 4; ++rank) {
    run = ranks[rank]->wait(60);
    EXPECT_EQ(run.code, rank == 2 ? 128 + SIGKILL : 76) << run.errors;
    EXPECT_LT(run.seconds, 20);
    // Who waits for it says itself in which step; the others are told who.
    const std::string self = std::to_string(rank);
    const std::string mine =
        ", and rank " + self + " \\(stage " + self + "\\) was ";
    const std::string told = ": rank [13] waits for it in step 1500";
    if (rank != 2)
      EXPECT_THAT(run.errors, testing::ContainsRegex(
                                  "rank 2 \\(stage 2\\) has died(" + told +
                                  mine + "|" + mine + "waiting.* step 1500)"));
    EXPECT_EQ(run.errors.find(": rank " + self + " waits"), std::string::npos)
        << run.errors;
    named += run.errors.find(" waits for it") != std::string::npos;
  }
  EXPECT_EQ(named, 2); // of three, but for who waits
  // Rank 0 watches over the others; they notice when it is lost.
  ranks = fourNumbered(folder, {"--steps", "8", "--timeout", "20"},
                       {"PIPEC_TEST_FAULT=0 B 3 1 9"});
  for (int rank = 1; rank < 4; ++rank) {
    run = ranks[rank]->wait(60);
    EXPECT_EQ(run.code, 76) << run.errors;
    EXPECT_THAT(run.errors, HasSubstr("rank 0 (stage 0) has died"));
  }
}

TEST(Fault, AllWhoHaveDiedAreTold) {
  const std::string folder = freshFolder("two_deaths");
  writePlan(scenarioNamed("four"), folder);
  auto ranks = fourNumbered(folder, {"--steps", "100000", "--timeout", "20"},
                            {"PIPEC_TEST_SLEEP_US=500"});
  for (int i = 0; i < 3000 && readText(folder + "/metrics.jsonl").empty(); ++i)
    usleep(10000);
  // Who watches sees both at once.
  kill(ranks[0]->pid(), SIGSTOP);
  for (int i = 0; i < 1000 && !isStopped(ranks[0]->pid()); ++i)
    usleep(1000);
  for (int rank : {2, 3}) {
    kill(ranks[rank]->pid(), SIGKILL);
    EXPECT_EQ(ranks[rank]->wait(10).code, 128 + SIGKILL);
  }
  kill(ranks[0]->pid(), SIGCONT);
  for (int rank : {0, 1}) {
    const Outcome run = ranks[rank]->wait(60);
    EXPECT_EQ(run.code, 76) << run.errors;
    EXPECT_THAT(run.errors,
                testing::ContainsRegex(
                    "rank ([23]) \\(stage [23]\\) has died.*, and rank [23] "
                    "\\(stage [23]\\) has died, too"));
    for (const char *name : {"rank 2 (stage 2)", "rank 3 (stage 3)"})
      EXPECT_THAT(run.errors, HasSubstr(name + std::string(" has died")));
  }
}

/// Each process has a command line and files of its own.
TEST(Fault, RanksThatDoNotRunTheSameAreRefused) {
  const std::string folder = freshFolder("others");
  writePlan(scenarioNamed("four"), folder);
  const auto saves = [&](const std::string &name, const std::string &rate) {
    EXPECT_EQ(runTool(folder,
                      {"--steps", "2", "--transport", "inproc", "--lr-schedule",
                       rate, "--checkpoint", folder + "/" + name})
                  .code,
              0);
  };
  saves("a", "constant");
  saves("b", "linear:total=9");
  struct Case {
    std::vector<std::string> all, another;
    std::string told; ///< a part of it
  };
  const Case cases[] = {
      {{}, {"--seed", "7"}, " has --seed 7, rank 0 (stage 0) has --seed 0; "},
      {{"--shuffle", "1"},
       {"--shuffle", "2"},
       " has --shuffle 2, rank 0 (stage 0) has --shuffle 1; "},
      {{"--checkpoint", folder + "/c"},
       {},
       " has no --checkpoint, rank 0 (stage 0) has --checkpoint; "},
      {{"--resume", folder + "/a"},
       {"--resume", folder + "/b"},
       " has the checkpoint of step 2, "},
  };
  const std::string metrics = readText(folder + "/metrics.jsonl");
  for (const Case &each : cases) {
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<std::string> arguments = rank == 2 ? each.another : each.all;
      arguments.insert(arguments.end(), {"--steps", "4"});
      ranks.push_back(numbered(folder, rank, arguments));
    }
    for (int rank = 0; rank < 4; ++rank) {
      const Outcome run = ranks[rank]->wait(60);
      EXPECT_EQ(run.code, 64) << run.errors;
      if (rank == 0)
        EXPECT_THAT(run.errors, HasSubstr("the ranks do not run the same: rank "
                                          "2 (stage 2)" +
                                          each.told));
    }
  }
  EXPECT_EQ(readText(folder + "/metrics.jsonl"), metrics); // none was begun
}

/// Rank 0, which says it for all, is ended by its watch.
TEST(Fault, WhatIsSavedIsToldFromWithinATask) {
  const std::string folder = freshFolder("long_task");
  writePlan(scenarioNamed("four"), folder);
  const std::string saved = folder + "/ck";
  auto ranks =
      fourNumbered(folder,
                   {"--steps", "100000", "--timeout", "40", "--checkpoint",
                    saved, "--checkpoint-every", "1"},
                   {"PIPEC_TEST_FAULT=0 F 3 2 0"}); // does not come back
  for (int i = 0; i < 1000 && (!fs::exists(saved) || stepsIn(saved) < 3); ++i)
    usleep(10000);
  ASSERT_EQ(stepsIn(saved), 3);
  sleep(2); // until rank 0 is in its task
  kill(ranks[3]->pid(), SIGKILL);
  EXPECT_EQ(ranks[3]->wait(10).code, 128 + SIGKILL);
  const Outcome run = ranks[0]->wait(60);
  EXPECT_EQ(run.code, 76) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("rank 3 (stage 3) has died"));
  EXPECT_THAT(run.errors,
              HasSubstr("and rank 0 (stage 0) was computing the forward of "
                        "microbatch 2, step 4"));
  EXPECT_THAT(run.errors, HasSubstr("; go on with --resume " + saved +
                                    ", which has 3 steps"));
  for (int rank : {1, 2})
    EXPECT_EQ(ranks[rank]->wait(60).code, 76);
}

/// As when a machine is suspended: nobody was there to wait.
TEST(Fault, APauseOfAllProcessesIsNoLoss) {
  const std::string folder = freshFolder("paused");
  writePlan(scenarioNamed("four"), folder);
  const std::vector<std::string> arguments = {"--steps", "400", "--timeout",
                                              "2"};
  const std::vector<std::string> slow = {"PIPEC_TEST_SLEEP_US=500"};
  const std::string metrics = folder + "/metrics.jsonl";
  auto pause = [&] { // in the middle of it
    for (int i = 0; i < 3000 && readText(metrics).empty(); ++i)
      usleep(10000);
    for (int signal : {SIGSTOP, SIGCONT}) {
      for (pid_t pid : processesOf(folder))
        kill(pid, signal);
      if (signal == SIGSTOP)
        usleep(4000000);
    }
  };
  const std::vector<double> want = train(scenarioNamed("four"), 400).losses;
  // Watched by rank 0, by the process that started them, and threads.
  auto ranks = fourNumbered(folder, arguments, slow);
  pause();
  Outcome run;
  for (auto &rank : ranks)
    EXPECT_EQ((run = rank->wait(60)).code, 0) << run.errors;
  readMetrics(metrics, run);
  EXPECT_EQ(run.losses, want);
  for (const char *transport : {"tcp", "mpi", "inproc"}) {
    SCOPED_TRACE(transport);
    fs::remove(metrics);
    std::vector<std::string> words = arguments;
    words.insert(words.end(), {"--transport", transport});
    Process process(toolCommand(folder, words), folder, slow);
    pause();
    EXPECT_TRUE(process.running()) << "it was over before the pause";
    run = process.wait();
    EXPECT_EQ(run.code, 0) << run.errors;
    readMetrics(metrics, run);
    EXPECT_EQ(run.losses, want);
  }
}

TEST(Fault, APauseWhileRanksConnectIsNoLoss) {
  const std::string folder = freshFolder("paused");
  writePlan(scenarioNamed("four"), folder);
  const std::vector<std::string> arguments = {"--steps", "8", "--timeout", "3"};
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 1; rank < 4; ++rank)
    ranks.push_back(numbered(folder, rank, arguments));
  usleep(500000); // they try to reach rank 0
  for (int signal : {SIGSTOP, SIGCONT}) {
    for (auto &rank : ranks)
      kill(rank->pid(), signal);
    if (signal == SIGSTOP)
      usleep(4000000);
  }
  ranks.push_back(numbered(folder, 0, arguments));
  for (auto &rank : ranks) {
    const Outcome run = rank->wait(60);
    EXPECT_EQ(run.code, 0) << run.errors;
  }
}

/// Not all ranks share the page of bells: messages from the others come without
/// a ring, and are found all the same.
TEST(Fault, RanksOfSeveralMachinesFindMessagesThatNobodyRingsFor) {
  for (const char *each : {"1", "2", "3"}) {
    const std::string folder = freshFolder("machines");
    writePlan(scenarioNamed("four"), folder);
    const Outcome run =
        runTool(folder, {"--steps", "20", "--transport", "mpi"},
                {"LD_PRELOAD=" PIPEC_MEETING,
                 std::string("PIPEC_TEST_RANKS_OF_A_HOST=") + each});
    ASSERT_EQ(run.code, 0) << run.errors;
    EXPECT_EQ(run.losses, train(scenarioNamed("four"), 20).losses);
    EXPECT_LT(run.seconds, 20);
  }
}

/// Four ranks under a bare mpirun, which leaves the others alone when one dies;
/// `fault` befalls them while they meet.
static Outcome meetUnderMpirun(const std::string &folder,
                               const std::string &timeout,
                               const std::string &fault) {
  std::vector<std::string> command = {
      "mpirun", "--oversubscribe",  "--allow-run-as-root", "-n",
      "4",      "--enable-recovery"};
  for (const std::string &word :
       toolCommand(folder, {"--steps", "8", "--timeout", timeout}))
    command.push_back(word);
  return Process(command, folder, {"LD_PRELOAD=" PIPEC_MEETING, fault})
      .wait(30);
}

TEST(Fault, ARankThatDiesBeforeAnybodyWatchesEndsTheJob) {
  const std::string folder = freshFolder("meeting");
  writePlan(scenarioNamed("four"), folder);
  const Outcome run =
      meetUnderMpirun(folder, "3", "PIPEC_TEST_DIE_WHILE_MEETING=2");
  EXPECT_LT(run.seconds, 20);
  for (const char *rank : {"0", "1", "3"})
    EXPECT_THAT(run.errors,
                HasSubstr(std::string("rank ") + rank +
                          " has waited for all ranks to connect for --timeout "
                          "3 s; one of them has died, stopped or not been "
                          "started"));
  EXPECT_TRUE(allGone(folder));
}

/// Ranks wait for --timeout once, not to connect and then again to start.
TEST(Fault, ARankThatComesLateAndDiesIsNotWaitedForTwice) {
  const std::string folder = freshFolder("late_and_gone");
  writePlan(scenarioNamed("four"), folder);
  const Outcome run =
      meetUnderMpirun(folder, "6", "PIPEC_TEST_LATE_AND_GONE=0");
  EXPECT_LT(run.seconds, 9); // 4 + 6 would be 10
  for (const char *rank : {"1", "2", "3"})
    EXPECT_THAT(run.errors, HasSubstr(std::string("rank ") + rank +
                                      " has waited for all ranks to start for "
                                      "--timeout 6 s"));
  EXPECT_TRUE(allGone(folder));
}

INSTANTIATE_TEST_SUITE_P(Fault, EveryPlace, testing::ValuesIn(kPlaces));

TEST(Fault, ADeathIsNoticedAtOnce) {
  const std::string folder = freshFolder("fault");
  writePlan(scenarioNamed("four"), folder);
  const Outcome run = runTool(folder, {"--steps", "8", "--transport", "mpi"},
                              {"PIPEC_TEST_FAULT=2 F 3 1 9"});
  EXPECT_EQ(run.code, 76);
  EXPECT_LT(run.seconds, 30); // the timeout is 60
}

/// The name of the newest checkpoint in a folder.
std::string newest(const std::string &folder) {
  std::string result;
  std::error_code missing;
  for (const auto &entry : fs::directory_iterator(folder, missing))
    if (entry.path().filename().string().rfind("step-", 0) == 0)
      result = std::max(result, entry.path().filename().string());
  return result;
}

TEST(Fault, AtAnyTimeAlsoWhileACheckpointIsWritten) {
  std::mt19937 random(3);
  const std::string folder = freshFolder("fault_any");
  writePlan(scenarioNamed("two"), folder);
  const std::string saved = folder + "/ck";
  std::vector<std::string> arguments = {
      "--steps",      "400", "--transport",        "mpi", "--timeout", "3",
      "--checkpoint", saved, "--checkpoint-every", "1"};
  int lost = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<std::string> command = arguments;
    if (fs::exists(saved))
      command.insert(command.end(), {"--resume", saved});
    const std::string before = newest(saved);
    Process process(toolCommand(folder, command), folder);
    while (newest(saved) == before && process.running())
      usleep(2000);
    usleep(random() % 200000);
    // Not the one we started, not mpirun: the ranks.
    std::vector<pid_t> ranks = processesOf(folder, "pipec-run");
    std::erase(ranks, process.pid());
    if (ranks.size() == 2) {
      kill(ranks[random() % 2], round % 3 ? SIGKILL : SIGSTOP);
      ++lost;
    }
    const Outcome run = process.wait(120);
    EXPECT_THAT(run.code, AnyOf(76, 0)) << run.errors;
    EXPECT_TRUE(allGone(folder));
  }
  EXPECT_GT(lost, 4);
  // To where it got, and a little on.
  const int steps = std::stoi(newest(saved).substr(5)) + 3;
  const Outcome run =
      runTool(folder, {"--steps", std::to_string(steps), "--transport", "mpi",
                       "--resume", saved});
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.losses, train(scenarioNamed("two"), steps).losses);
}

TEST(Fault, ARankThatStopsWhileItEndsIsNotWaitedFor) {
  const std::string folder = freshFolder("fault");
  writePlan(scenarioNamed("two"), folder);
  Process process(
      toolCommand(folder,
                  {"--steps", "3", "--transport", "mpi", "--timeout", "3"}),
      folder, {"LD_PRELOAD=" PIPEC_STOP_AT_EXIT, "PIPEC_TEST_STOP_AT_EXIT=1"});
  Outcome run = process.wait(30);
  readMetrics(folder + "/metrics.jsonl", run);
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.losses, train(scenarioNamed("two"), 3).losses);
  EXPECT_TRUE(run.errors.empty()) << run.errors;
  EXPECT_TRUE(allGone(folder));
}

TEST(Fault, RanksEndWithTheirLauncher) {
  const std::string folder = freshFolder("fault");
  writePlan(scenarioNamed("four"), folder);
  Process process(toolCommand(folder, {"--steps", "100000", "--transport",
                                       "mpi", "--timeout", "4"}),
                  folder, {"PIPEC_TEST_SLEEP_US=1000"});
  while (processesOf(folder, "pipec-run").size() < 5 && process.running())
    usleep(10000);
  kill(process.pid(), SIGKILL);
  process.wait(5);
  EXPECT_TRUE(allGone(folder));
}

TEST(Fault, EndsUnderAnotherLauncher) {
  const std::string folder = freshFolder("fault");
  writePlan(scenarioNamed("four"), folder);
  std::vector<std::string> command = {"mpirun", "--oversubscribe",
                                      "--allow-run-as-root", "-n", "4"};
  for (const std::string &word :
       toolCommand(folder, {"--steps", "8", "--timeout", "10"}))
    command.push_back(word);
  Outcome run = Process(command, folder).wait(30);
  readMetrics(folder + "/metrics.jsonl", run);
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.losses, train(scenarioNamed("four"), 8).losses);

  run = Process(command, folder, {"PIPEC_TEST_FAULT=1 B 3 1 19"}).wait(30);
  EXPECT_EQ(run.code, 76) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("rank 1 (stage 1) has not answered"));
  EXPECT_TRUE(allGone(folder));
}

TEST(Fault, MpiEndsInOrderWhenItsThreadComesLate) {
  const std::string folder = freshFolder("late");
  writePlan(scenarioNamed("four"), folder);
  const Outcome run = runTool(folder, {"--steps", "3", "--transport", "mpi"},
                              {"LD_PRELOAD=" PIPEC_LATE_EVENTS,
                               "PIPEC_TEST_LATE_EVENTS=" + folder + "/late"});
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.losses, train(scenarioNamed("four"), 3).losses);
  EXPECT_TRUE(run.errors.empty()) << run.errors;
  if (!fs::exists(folder + "/late"))
    GTEST_SKIP() << "this MPI has no such thread";
}

TEST(Fault, ALauncherWithTheWrongNumberOfRanksIsTold) {
  const std::string folder = freshFolder("fault");
  writePlan(scenarioNamed("four"), folder);
  std::vector<std::string> command = {"mpirun", "--oversubscribe",
                                      "--allow-run-as-root", "-n", "2"};
  for (const std::string &word : toolCommand(folder, {"--steps", "8"}))
    command.push_back(word);
  const Outcome run = Process(command, folder).wait(30);
  EXPECT_EQ(run.code, 64) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("the plan has 4 ranks"));
}

TEST(Fault, NaNEndsAllRanks) {
  for (const char *name : {"four", "stream_four"})
    for (const char *transport : {"inproc", "mpi"}) {
      const std::string folder = freshFolder("nan");
      writePlan(scenarioNamed(name), folder);
      std::fstream file(folder + "/target.npy",
                        std::ios::in | std::ios::out | std::ios::binary);
      const float nan = std::numeric_limits<float>::quiet_NaN();
      file.seekp(-4, std::ios::end);
      file.write(reinterpret_cast<const char *>(&nan), 4);
      file.close();
      const Outcome run =
          runTool(folder, {"--steps", "50", "--transport", transport});
      EXPECT_EQ(run.code, 77) << run.errors;
      EXPECT_THAT(run.errors, HasSubstr("is NaN"));
      EXPECT_THAT(run.errors, HasSubstr("its data has NaN: value [22, 15] of "
                                        "input 'target' (" +
                                        folder + "/target.npy)"));
      EXPECT_LT(run.seconds, 10);
      // Row 22 of 23, in microbatches of 4.
      EXPECT_THAT(run.errors, HasSubstr(std::string(name) == "four"
                                            ? "step 2, microbatch 1"
                                            : "step 6, microbatch 0"));
    }
}

TEST(Fault, AMissingStageProgramIsABadPlan) {
  const std::string folder = freshFolder("missing");
  writePlan(scenarioNamed("four"), folder);
  fs::remove(folder + "/stages/stage2.so");
  for (const char *transport : {"inproc", "mpi"}) {
    const Outcome run =
        runTool(folder, {"--steps", "2", "--transport", transport});
    EXPECT_EQ(run.code, 78) << run.errors;
    EXPECT_THAT(run.errors, HasSubstr("stage2.so"));
  }
}

TEST(Fault, AChangedModelIsRefused) {
  const std::string folder = freshFolder("changed");
  plan::Plan plan = writePlan(scenarioNamed("two"), folder);
  std::string model = folder + "/model.onnx"; // of the plan folder
  const auto run = [&] {
    return runTool(folder, {"--steps", "2", "--transport", "inproc"});
  };
  std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  Outcome ended = run();
  EXPECT_EQ(ended.code, 78);
  EXPECT_THAT(ended.errors, HasSubstr("digest"));
  // Beside it, it is the user's.
  plan.files[0].relative = "../changed.onnx";
  fs::rename(model, folder + "/../changed.onnx");
  model = folder + "/../changed.onnx";
  std::ofstream(folder + "/plan.json") << plan::toJson(plan);
  ended = run();
  EXPECT_EQ(ended.code, 65);
  EXPECT_THAT(ended.errors, HasSubstr("digest"));
  fs::remove(model);
  EXPECT_EQ(run().code, 66);
}

} // namespace
} // namespace pipec::test
