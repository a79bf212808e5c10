//===- WorkingCopyTest.cpp - what a killed writer leaves
//-------------------===//
#include "support/OutputFile.h"
#include "support/ScratchFolder.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

namespace pipec {
namespace {

namespace fs = std::filesystem;

class WorkingCopies : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/copyXXXXXX";
    folder = mkdtemp(pattern.data());
    output = folder + "/model.onnx";
  }
  void TearDown() override { fs::remove_all(folder); }

  std::set<std::string> names() const {
    std::set<std::string> result;
    for (const auto &entry : fs::directory_iterator(folder))
      result.insert(entry.path().filename().string());
    return result;
  }

  /// A process that makes a copy and lives until it is killed; `copies` are
  /// here by then.
  pid_t writer(WorkingCopy::Kind kind, size_t copies) const {
    const pid_t child = fork();
    if (child == 0) {
      const WorkingCopy copy(output, kind);
      if (kind == WorkingCopy::Kind::Folder)
        std::ofstream(copy.path() + "/part") << "x";
      while (true)
        pause();
    }
    const auto waits = [&] {
      return names().size() < copies ||
             (kind == WorkingCopy::Kind::Folder && !anyPart());
    };
    for (int i = 0; i < 5000 && waits(); ++i)
      usleep(1000);
    EXPECT_EQ(names().size(), copies);
    return child;
  }
  bool anyPart() const {
    for (const auto &entry : fs::recursive_directory_iterator(folder))
      if (entry.path().filename() == "part")
        return true;
    return false;
  }
  static void end(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  std::string folder, output;
};

TEST_F(WorkingCopies, OfAKilledWriterGoWithTheNextOne) {
  for (auto kind : {WorkingCopy::Kind::File, WorkingCopy::Kind::Folder}) {
    const pid_t dead = writer(kind, 1), alive = writer(kind, 2);
    const std::set<std::string> both = names();
    end(dead);
    EXPECT_EQ(names(), both) << "it could not have been swept";
    {
      const WorkingCopy mine(output, kind);
      // Mine and that of the one who lives.
      EXPECT_EQ(names().size(), 2u);
      EXPECT_TRUE(fs::exists(mine.path()));
      fs::remove(mine.path());
    }
    EXPECT_EQ(names().size(), 1u);
    EXPECT_EQ(both.count(*names().begin()), 1u);
    end(alive);
    writeFile(output, "whole");
    EXPECT_EQ(names(), std::set<std::string>{"model.onnx"});
    fs::remove(output);
  }
}

TEST_F(WorkingCopies, ScratchFoldersOfTheDeadGoWithTheNextOne) {
  const pid_t dead = fork();
  if (dead == 0) {
    const ScratchFolder scratch(folder, "model.onnx");
    std::ofstream(scratch / "part") << "x";
    raise(SIGKILL);
  }
  waitpid(dead, nullptr, 0);
  ASSERT_EQ(names().size(), 1u);
  std::ofstream(folder + "/model.onnx-ours") << "x";
  {
    const ScratchFolder scratch(folder, "model.onnx");
    EXPECT_EQ(scratch.path().rfind(folder + "/model.onnx-", 0), 0u);
    std::ofstream(scratch / "part") << "x";
    EXPECT_EQ(fs::status(scratch.path()).permissions(), fs::perms::owner_all);
    EXPECT_EQ(names().size(), 2u);
  }
  EXPECT_EQ(names(), std::set<std::string>{"model.onnx-ours"});
}

TEST_F(WorkingCopies, LeaveWhatIsNotTheirs) {
  const std::set<std::string> others = {
      "model.onnx.data.writing-0123abcd", // of another output
      "model.onnx.writing-0123abc", "model.onnx.writing-0123abcX",
      "model.onnx.writing-0123abcd.txt", "a.model.onnx.writing-0123abcd"};
  for (const std::string &name : others)
    std::ofstream(folder + "/" + name) << "x";
  std::ofstream(folder + "/model.onnx.writing-0123abcd") << "x"; // nobody's
  {
    const AtomicFile file(output);
  }
  EXPECT_EQ(names(), others);
}

TEST_F(WorkingCopies, WritersDoNotSweepEachOther) {
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    children.push_back(fork());
    if (children.back() > 0)
      continue;
    try {
      for (int i = 0; i < 300; ++i)
        writeFile(output, std::to_string(i));
      _exit(0);
    } catch (const std::exception &) {
      _exit(1);
    }
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(names(), std::set<std::string>{"model.onnx"});
}

} // namespace
} // namespace pipec
