//===- InspectTest.cpp - `pipec inspect` ---------------------------------===//
#include "compiler/driver/InspectCommand.h"

#include "../report/SamplePlan.h"
#include "Capture.h"
#include "report/Report.h"
#include "runtime/program/Sha256.h"
#include "support/Failure.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace pipec {

namespace {

struct InspectCommand : testing::Test {
  plan::Plan plan = samplePlan();
  std::string folder = testing::TempDir() + "inspect-test.plan";
  void SetUp() override {
    for (const std::string &where : {folder, folder + "/evaluation"}) {
      std::filesystem::create_directories(where + "/stages");
      for (plan::Stage &stage : plan.stages) {
        std::ofstream(where + "/" + stage.library) << "stage " << stage.id;
        stage.sha256 = sha256OfFile(where + "/" + stage.library);
      }
      std::ofstream(where + "/plan.json") << plan::toJson(plan);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string inspect(std::vector<std::string> words) {
    words.insert(words.begin(), "inspect");
    Arguments arguments(words);
    return printed([&] {
      EXPECT_EQ(inspectCommand(arguments.count(), arguments.values()), 0);
    });
  }
};

} // namespace

TEST_F(InspectCommand, PrintsTablesOrJson) {
  EXPECT_EQ(inspect({folder}), report::inspectText(plan));
  EXPECT_EQ(inspect({folder, "--format", "json"}), report::inspectJson(plan));
  EXPECT_EQ(inspect({folder, "--quiet"}), "");
}

TEST_F(InspectCommand, NamesTheStageProgramThatIsNotThePlans) {
  const auto refused = [&](const std::string &file) {
    for (const char *option : {"--quiet", "--format=json"})
      try {
        inspect({folder, option});
        ADD_FAILURE() << file;
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, Exit::BadPlan);
        EXPECT_THAT(failure.what(), testing::HasSubstr(file));
        EXPECT_THAT(failure.what(), testing::HasSubstr("copy the plan folder"));
      }
  };
  const std::string first = folder + "/" + plan.stages[0].library;
  const std::string last = folder + "/evaluation/" + plan.stages.back().library;
  std::ofstream(last, std::ios::app) << "x";
  refused(last);
  std::filesystem::remove(last);
  refused(last);
  std::filesystem::remove(first);
  refused(first);
}

TEST_F(InspectCommand, NamesAMissingEvaluation) {
  std::filesystem::remove_all(folder + "/evaluation");
  try {
    inspect({folder});
    ADD_FAILURE();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::NoInput);
    EXPECT_EQ(failure.what(),
              folder + "/evaluation: the plan that evaluates what this one "
                       "trains is missing; copy the plan folder again or "
                       "compile the model again");
  }
}

TEST_F(InspectCommand, RefusesWhatIsNoPlan) {
  auto code = [&](std::vector<std::string> words) {
    try {
      inspect(words);
    } catch (const Failure &failure) {
      return failure.code;
    }
    return Exit::Ok;
  };
  EXPECT_EQ(code({folder + "/missing"}), Exit::NoInput);
  EXPECT_EQ(code({}), Exit::Usage);
  std::ofstream(folder + "/plan.json") << "{\"version\": 1";
  EXPECT_EQ(code({folder}), Exit::BadPlan);
}

} // namespace pipec
