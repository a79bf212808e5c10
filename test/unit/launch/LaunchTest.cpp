//===- LaunchTest.cpp - start scripts ------------------------------------===//
#include "compiler/driver/Launch.h"

#include "../report/SamplePlan.h"
#include "support/Failure.h"

#include <csignal>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/wait.h>

namespace pipec {

using testing::HasSubstr;
using testing::Not;

namespace {

plan::Plan twoServers() {
  plan::Plan plan = samplePlan();
  plan.cluster.servers = 2;
  plan.cluster.devices_per_server = 2;
  // Not in the order of the servers: stage 1 is on the second.
  const int host[] = {0, 1, 0, 1};
  for (plan::Rank &rank : plan.ranks)
    rank.host = host[rank.rank];
  return plan;
}

std::string read(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct LaunchFiles : testing::Test {
  std::string folder = testing::TempDir() + "launch-test.plan";
  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }

  int run(const std::string &command) {
    int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  /// The plan's mpirun.sh, whose process is in the file "pid", with a shell
  /// program for pipec-run.
  int runProgram(const std::string &text) {
    writeLaunchFiles(samplePlan(), folder);
    const std::string program = folder + "/program";
    std::ofstream(program) << "#!/bin/bash\n" << text << "\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return run("PIPEC_RUN=" + program + " bash -c 'echo $$ >" + folder +
               "/pid; exec " + folder + "/launch/mpirun.sh' </dev/null >" +
               folder + "/out 2>" + folder + "/err");
  }
};

} // namespace

TEST_F(LaunchFiles, AreValidScripts) {
  writeLaunchFiles(twoServers(), folder);
  EXPECT_EQ(run("bash -n " + folder + "/launch/mpirun.sh"), 0);
  EXPECT_EQ(run("bash -n " + folder + "/launch/slurm.sbatch"), 0);
  EXPECT_EQ(access((folder + "/launch/mpirun.sh").c_str(), X_OK), 0);
  for (const char *name : {"mpirun.sh", "slurm.sbatch", "kubernetes.yaml"})
    EXPECT_THAT(read(folder + "/launch/" + name), Not(HasSubstr("@R")));
}

TEST_F(LaunchFiles, StartEveryRankWithTheArguments) {
  if (run("command -v mpirun >/dev/null") != 0)
    GTEST_SKIP() << "no mpirun here";
  writeLaunchFiles(samplePlan(), folder);
  const std::string program = folder + "/program";
  std::ofstream(program) << "#!/bin/sh\n"
                            "echo \"$@\" > \"$1/$OMPI_COMM_WORLD_RANK\"\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  ASSERT_EQ(run("PIPEC_RUN=" + program + " " + folder +
                "/launch/mpirun.sh --steps 3 'a b' </dev/null"),
            0);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(read(folder + "/" + std::to_string(rank)),
                HasSubstr(" --steps 3 a b"));
}

TEST_F(LaunchFiles, GiveBackTheExitCode) {
  if (run("command -v mpirun >/dev/null") != 0)
    GTEST_SKIP() << "no mpirun here";
  EXPECT_EQ(runProgram("exit 75"), 75);
  // One rank is killed while the others work.
  EXPECT_EQ(runProgram("[ $OMPI_COMM_WORLD_RANK = 1 ] && kill -9 $$; sleep 60"),
            76);
  EXPECT_THAT(read(folder + "/err"), HasSubstr("mpirun.sh: a rank was killed"));
}

TEST_F(LaunchFiles, AskTheRanksToStopWhenTheyAreAsked) {
  if (run("command -v mpirun >/dev/null") != 0)
    GTEST_SKIP() << "no mpirun here";
  // A shell cannot trap what it was started to ignore, as by nohup.
  for (int ignored : {SIGINT, SIGHUP, SIGQUIT})
    std::signal(ignored, SIG_DFL);
  // Rank 0 asks mpirun.sh, as a terminal or a batch system would, when all are
  // there; they are in no hurry.
  const std::string ask = "touch " + folder +
                          "/there$OMPI_COMM_WORLD_RANK; "
                          "[ $OMPI_COMM_WORLD_RANK = 0 ] && while [ $(ls " +
                          folder +
                          "/there? | wc -l) != 4 ]; do :; done && kill -";
  const std::string work =
      " $(cat " + folder + "/pid); while :; do sleep 0.1; done";
  for (const std::string signal : {"TERM", "INT", "HUP", "USR1"}) {
    SCOPED_TRACE(signal);
    ASSERT_EQ(run("rm -f " + folder + "/there*"), 0);
    EXPECT_EQ(runProgram("trap 'sleep 1; exit 75' USR1; trap 'exit 1' TERM; " +
                         ask + signal + work),
              75)
        << read(folder + "/err");
  }
  // One that has not begun dies of what it is told.
  ASSERT_EQ(run("rm -f " + folder + "/there*"), 0);
  EXPECT_EQ(runProgram(ask + "TERM" + work), 75) << read(folder + "/err");
  // Asked again, and no rank in a hurry: all are killed.
  ASSERT_EQ(run("rm -f " + folder + "/there*"), 0);
  EXPECT_EQ(runProgram("trap '' USR1; " + ask + "INT $(cat " + folder +
                       "/pid) && sleep 1 && kill -INT" + work),
            128 + SIGINT)
      << read(folder + "/err");
}

/// All was done when they were asked again: that is no failure.
TEST_F(LaunchFiles, KeepTheCodeOfWhoEndsWellAfterAll) {
  writeLaunchFiles(samplePlan(), folder);
  const std::string mpirun = folder + "/mpirun";
  for (const auto &[ends, code] : {std::pair(0, 0), std::pair(1, 130)}) {
    std::ofstream(mpirun) << "#!/bin/bash\n"
                             "trap '' TERM USR1\n"
                             "for i in 1 2; do kill -INT $PPID; sleep 0.3; "
                             "done\nexit "
                          << ends << "\n";
    std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
    std::signal(SIGINT, SIG_DFL);
    EXPECT_EQ(run("PATH=" + folder + ":$PATH " + folder +
                  "/launch/mpirun.sh </dev/null"),
              code);
  }
}

TEST_F(LaunchFiles, WantAsManyHostsAsThePlanHasServers) {
  writeLaunchFiles(twoServers(), folder);
  EXPECT_EQ(
      run("HOSTS=alpha " + folder + "/launch/mpirun.sh 2>" + folder + "/err"),
      64);
  EXPECT_EQ(read(folder + "/err"),
            "mpirun.sh: HOSTS must name 2 servers, it names 1\n");
}

TEST(Launch, KeepsTheServerOfEveryRank) {
  EXPECT_THAT(mpirunScript(twoServers()),
              HasSubstr("server_of_rank=(0 1 0 1)"));
  EXPECT_THAT(slurmScript(twoServers()),
              HasSubstr("#SBATCH --nodes=2\n#SBATCH --ntasks=4\n#SBATCH "
                        "--ntasks-per-node=2\n"));
  EXPECT_THAT(kubernetesManifest(twoServers()), HasSubstr("replicas: 2\n"));
}

/// What a model calls its inputs is no command, and ends no comment.
TEST(Launch, NamesAreWordsOfTheShell) {
  plan::Plan plan = samplePlan();
  plan.inputs[0].name = "a\nrm b";
  const std::string word = "--data $'a\\x0arm b=a\\x0arm b.npy'";
  EXPECT_THAT(mpirunScript(plan), testing::HasSubstr(word));
  EXPECT_THAT(slurmScript(plan), testing::HasSubstr(word));
  plan.inputs[0].name = "a;b";
  EXPECT_THAT(kubernetesManifest(plan),
              testing::HasSubstr("\n                  --data "
                                 "'a;b=/data/a;b.npy'\n"));
}

TEST(Launch, AsksForGpusOnlyWhereThePlanHasThem) {
  plan::Plan plan = twoServers();
  EXPECT_THAT(slurmScript(plan), Not(HasSubstr("gpus")));
  plan.cluster.kind = "cuda";
  EXPECT_THAT(slurmScript(plan), HasSubstr("#SBATCH --gpus-per-node=2\n"));
  EXPECT_THAT(kubernetesManifest(plan), HasSubstr("nvidia.com/gpu: 2"));
}

TEST(Launch, SaysWhatCannotBeWritten) {
  EXPECT_THROW(writeLaunchFiles(samplePlan(), "/dev/null"), Failure);
}

} // namespace pipec
