//===- ListTest.cpp - `pipec list` ---------------------------------------===//
#include "compiler/driver/ListCommand.h"

#include "Capture.h"
#include "compiler/plan/DeviceModel.h"
#include "compiler/schedule/Generator.h"
#include "compiler/strategy/Strategy.h"
#include "support/Failure.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace pipec {

using testing::HasSubstr;

namespace {

const ListTables kTables = {
    {{"Add", "elementwise sum", {{"since", "7,13,14"}, {"limits", ""}}}},
    {{"sgd", "gradient descent", {{"settings", "lr=0.01"}}}}};

std::string list(const std::vector<std::string> &words) {
  std::vector<std::string> all = {"list"};
  all.insert(all.end(), words.begin(), words.end());
  Arguments arguments(all);
  return printed([&] {
    EXPECT_EQ(listCommand(arguments.count(), arguments.values(), kTables), 0);
  });
}

nlohmann::json listJson(const std::string &what) {
  return nlohmann::json::parse(list({what, "--format", "json"}));
}

} // namespace

TEST(List, ShowsEveryRowOfEveryTable) {
  EXPECT_EQ(listJson("schedules").size(), schedule::schedules().size());
  // And auto, and file:S.csv.
  EXPECT_EQ(listJson("strategies").size(), strategy::strategies().size() + 2);
  EXPECT_EQ(listJson("devices").size(), plan::deviceModels().size());
  EXPECT_EQ(listJson("losses").size(), 5u);
  EXPECT_EQ(listJson("ops").size(), 1u);
  EXPECT_EQ(listJson("optimizers").size(), 1u);
}

TEST(List, JsonHasTheColumns) {
  auto rows = listJson("strategies");
  for (const auto &row : rows) {
    if (row["name"] != "pipedream")
      continue;
    EXPECT_EQ(row["versions"], "stash");
    EXPECT_EQ(row["update"], "round");
    EXPECT_EQ(row["synchronous"], "no");
    return;
  }
  FAIL() << "no pipedream";
}

TEST(List, AloneItListsWhatThereIs) {
  EXPECT_EQ(list({"--quiet"}), "ops\nschedules\nstrategies\nplanners\n"
                               "devices\nlosses\noptimizers\n");
  EXPECT_THAT(list({}), HasSubstr("name        summary\n"
                                  "ops         ONNX operators\n"));
}

TEST(List, TextIsATable) {
  EXPECT_EQ(list({"ops"}), "name  since    limits  summary\n"
                           "Add   7,13,14  -       elementwise sum\n");
  EXPECT_THAT(list({"devices"}), HasSubstr("h100-sxm"));
  EXPECT_EQ(list({"optimizers", "--quiet"}), "sgd\n");
}

TEST(List, RefusesWhatItDoesNotKnow) {
  for (std::vector<std::string> words :
       {std::vector<std::string>{"list", "colors"},
        {"list", "ops", "losses"},
        {"list", "ops", "--format", "xml"}}) {
    Arguments arguments(words);
    try {
      listCommand(arguments.count(), arguments.values(), kTables);
      FAIL();
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::Usage);
      EXPECT_THAT(failure.what(), HasSubstr("pipec list --help"));
    }
  }
}

} // namespace pipec
