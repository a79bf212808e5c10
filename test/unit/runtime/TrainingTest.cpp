//===- TrainingTest.cpp - every strategy against a plain reference --------===//
//
// Runs pipec-run itself, with ranks as threads and as processes.
//
//===----------------------------------------------------------------------===//
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipec::test {
namespace {

class EveryScenario : public testing::TestWithParam<NamedScenario> {};

TEST_P(EveryScenario, HasTheReferencesLossesToTheLastBit) {
  const Scenario &setup = GetParam().setup;
  const std::string folder =
      freshFolder(std::string("train_") + GetParam().name);
  writePlan(setup, folder);
  const int steps = setup.stream() ? 17 : 6;
  const Outcome run = runTool(
      folder, {"--steps", std::to_string(steps), "--transport", "inproc"});
  ASSERT_EQ(run.code, 0) << run.errors;
  const Reference reference = train(setup, steps);
  EXPECT_EQ(run.losses, reference.losses);
  for (auto &rank : run.summary["ranks"])
    EXPECT_EQ(rank["peak_bytes"], rank["predicted_peak_bytes"]);
}

INSTANTIATE_TEST_SUITE_P(Training, EveryScenario, testing::ValuesIn(setups()),
                         [](auto &info) { return info.param.name; });

} // namespace
} // namespace pipec::test
