//===- InspectTest.cpp - `pipec inspect` ---------------------------------===//
#include "compiler/driver/InspectCommand.h"

#include "../report/SamplePlan.h"
#include "Capture.h"
#include "report/Report.h"
#include "support/Failure.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace pipec {

namespace {

struct InspectCommand : testing::Test {
  std::string folder = testing::TempDir() + "inspect-test.plan";
  void SetUp() override {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/plan.json") << plan::toJson(samplePlan());
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
  EXPECT_EQ(inspect({folder}), report::inspectText(samplePlan()));
  EXPECT_EQ(inspect({folder, "--format", "json"}),
            report::inspectJson(samplePlan()));
  EXPECT_EQ(inspect({folder, "--quiet"}), "");
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
