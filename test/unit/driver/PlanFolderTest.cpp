//===- PlanFolderTest.cpp - a plan appears whole or not at all ------------===//
#include "compiler/driver/PlanFolder.h"
#include "support/Failure.h"

#include "gtest/gtest.h"

#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;
using namespace pipec;

namespace {

/// A failure with more to say, as plan::NoFit.
struct Refusal : Failure {
  Refusal() : Failure(Exit::NoFit, "nothing fits") {}
  int bytes = 7;
};

class PlanFolderTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/planXXXXXX";
    root = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(root); }
  size_t entries() {
    return std::distance(fs::directory_iterator(root),
                         fs::directory_iterator());
  }
  fs::path root;
};

TEST_F(PlanFolderTest, NothingIsLeftWithoutCommit) {
  {
    PlanFolder folder((root / "a.plan").string());
    folder.writeFile("plan.json", "{}");
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(PlanFolderTest, RemovesWhatAKilledCompileHasLeft) {
  fs::create_directories(root / "a.plan.writing-01234567/stages");
  PlanFolder folder((root / "a.plan").string());
  EXPECT_EQ(entries(), 1u);
  folder.writeFile("plan.json", "{}");
  folder.commit();
  EXPECT_EQ(entries(), 1u);
}

TEST_F(PlanFolderTest, ReplacesAPlanWhole) {
  for (const char *content : {"1", "2"}) {
    PlanFolder folder((root / "a.plan").string());
    folder.writeFile("plan.json", content);
    folder.writeFile(std::string("stages/") + content, "x");
    folder.commit();
  }
  EXPECT_EQ(entries(), 1u);
  EXPECT_FALSE(fs::exists(root / "a.plan/stages/1"));
  EXPECT_TRUE(fs::exists(root / "a.plan/stages/2"));
}

TEST_F(PlanFolderTest, WhatNoCompilationHasWrittenStays) {
  for (const char *content : {"1", "2"}) {
    PlanFolder folder((root / "a.plan").string());
    folder.writeFile("plan.json", content);
    folder.commit();
    fs::create_directories(root / "a.plan/model"); // of --self-contained
    fs::create_directories(root / "a.plan/saved/step-00000001");
    std::ofstream(root / "a.plan/trained.onnx") << content;
  }
  PlanFolder((root / "a.plan").string()).commit();
  EXPECT_EQ(entries(), 1u);
  EXPECT_FALSE(fs::exists(root / "a.plan/model"));
  EXPECT_TRUE(fs::exists(root / "a.plan/saved/step-00000001"));
  EXPECT_EQ(fs::file_size(root / "a.plan/trained.onnx"), 1u);
}

TEST_F(PlanFolderTest, WhatCannotBeTakenOverIsTheNextOnesToKeep) {
  const std::string name = (root / "a.plan").string();
  const auto make = [&] {
    PlanFolder folder(name);
    folder.writeFile("plan.json", "{}");
    folder.writeFile("mine/new", "x"); // in the way
    folder.commit();
  };
  fs::create_directories(root / "a.plan/mine");
  std::ofstream(root / "a.plan/plan.json") << "{}";
  std::ofstream(root / "a.plan/mine/saved") << "x";
  std::string left;
  try {
    make();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::CannotWrite);
    const std::string told = failure.what();
    const size_t from = told.find(" is in ") + 7;
    left = told.substr(from, told.find(": move it") - from);
  }
  fs::remove_all(root / "a.plan/mine");
  make(); // which sweeps what dead compilations have left
  EXPECT_TRUE(fs::exists(left + "/mine/saved")) << left;
}

TEST_F(PlanFolderTest, ALinkToAPlanStaysOne) {
  for (const char *content : {"1", "2"}) {
    PlanFolder folder((root / (*content == '1' ? "a.plan" : "same")).string());
    folder.writeFile("plan.json", content);
    folder.commit();
    fs::create_directories(root / "a.plan/saved");
    if (*content == '1')
      fs::create_symlink("a.plan", root / "same");
  }
  EXPECT_TRUE(fs::is_symlink(root / "same"));
  EXPECT_TRUE(fs::exists(root / "a.plan/saved"));
  std::string content;
  std::ifstream(root / "a.plan/plan.json") >> content;
  EXPECT_EQ(content, "2");
  EXPECT_EQ(entries(), 2u);
}

TEST_F(PlanFolderTest, LeavesOtherFoldersAlone) {
  fs::create_directory(root / "photos");
  std::ofstream(root / "photos/cat") << "x";
  try {
    PlanFolder folder((root / "photos").string());
    ADD_FAILURE();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::CannotWrite);
  }
  EXPECT_TRUE(fs::exists(root / "photos/cat"));
}

TEST_F(PlanFolderTest, FailuresNameThePlanAndStayWhatTheyAre) {
  const std::string name = (root / "a.plan").lexically_normal();
  PlanFolder folder(name);
  auto thrown = [&](const auto &failure) {
    try {
      throw failure;
    } catch (const Failure &caught) {
      folder.rethrow(caught);
    }
  };
  try {
    thrown(Failure(Exit::CannotWrite, "no " + folder.temporary() + "/b"));
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::CannotWrite);
    EXPECT_EQ(failure.what(), "no " + name + "/b");
  }
  try {
    thrown(Refusal());
  } catch (const Refusal &refusal) {
    EXPECT_EQ(refusal.bytes, 7);
    return;
  } catch (const Failure &) {
  }
  ADD_FAILURE() << "it is a plain failure now";
}

TEST_F(PlanFolderTest, FoldedTensorsAreASafetensorsFile) {
  plan::Plan plan;
  plan.weights.push_back(
      {"a", "float32", "constant", {2}, 8, {}, false, {}, {}});
  plan.weights.push_back({"b", "int64", "constant", {}, 8, {}, false, {}, {}});
  PlanFolder folder((root / "a.plan").string());
  folder.writeFolded(plan, {{"a", "12345678"}, {"b", "abcdefgh"}});
  folder.addFiles(plan, false);
  ASSERT_EQ(plan.files.size(), 1u);
  std::ifstream file(folder.temporary() + "/weights.safetensors",
                     std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(bytes.substr(plan.weights[0].source.offset, 8), "12345678");
  EXPECT_EQ(bytes.substr(plan.weights[1].source.offset, 8), "abcdefgh");
  EXPECT_EQ(plan.weights[0].source.offset % 64, 0);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), plan.files[0].bytes);
}

} // namespace
