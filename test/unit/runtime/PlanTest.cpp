//===- PlanTest.cpp - plan.json ------------------------------------------===//
#include "runtime/program/Plan.h"
#include "runtime/program/Memory.h"
#include "runtime/program/Sequence.h"
#include "runtime/program/Sha256.h"
#include "support/Failure.h"
#include "test/unit/runtime/TestModel.h"

#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace pipec::test {
namespace {

using Json = nlohmann::ordered_json;

std::string read(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class EveryScenario : public testing::TestWithParam<NamedScenario> {};

TEST_P(EveryScenario, IsWrittenAndReadBackToTheSameBytes) {
  const std::string folder = freshFolder("plan");
  const plan::Plan plan = writePlan(GetParam().setup, folder);
  const std::string text = read(folder + "/plan.json");
  EXPECT_EQ(plan::toJson(plan::readPlan(folder)), text);
  EXPECT_EQ(plan::toJson(plan), text);
}

TEST_P(EveryScenario, PartsOfMemoryMakeThePeak) {
  const plan::Plan plan = writePlan(GetParam().setup, freshFolder("plan"));
  for (const plan::Rank &rank : plan.ranks)
    EXPECT_EQ(plan::rankBytes(plan, rank.rank), rank.peak_bytes);
}

INSTANTIATE_TEST_SUITE_P(Plan, EveryScenario, testing::ValuesIn(scenarios()),
                         [](auto &info) { return info.param.name; });

/// The message of the failure that reading a changed plan gives.
std::string refusal(const std::string &setup,
                    const std::function<void(Json &)> &change) {
  const std::string folder = freshFolder("bad");
  writePlan(scenarioNamed(setup), folder);
  Json json = Json::parse(read(folder + "/plan.json"));
  change(json);
  std::ofstream(folder + "/plan.json") << json.dump();
  try {
    plan::readPlan(folder);
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::BadPlan);
    return failure.what();
  }
  return "accepted";
}

/// Has the first stage keep weights rounded: {offset, rows, row, to, pitch}.
void round(Json &plan, const std::vector<int64_t> &numbers) {
  Json piece;
  for (size_t i = 0; const char *key : {"offset", "rows", "row", "to", "pitch"})
    piece[key] = numbers[i++];
  plan["stages"][0]["rounded"] = Json::array({piece});
}

struct Wrong {
  const char *setup;
  const char *field; ///< must be named
  std::function<void(Json &)> change;
};

TEST(Plan, NamesTheFieldThatIsWrong) {
  const Wrong cases[] = {
      {"two", "stages is missing", [](Json &j) { j.erase("stages"); }},
      {"two", "stages must be an array", [](Json &j) { j["stages"] = 3; }},
      {"two", "stages is empty", [](Json &j) { j["stages"] = Json::array(); }},
      {"two", "version 6", [](Json &j) { j["version"] = 6; }},
      {"two", "stages[1].id", [](Json &j) { j["stages"][1]["id"] = 0; }},
      {"two", "stages[1].ranks",
       [](Json &j) { j["stages"][1]["ranks"] = {7}; }},
      {"two", "stages[0].library",
       [](Json &j) { j["stages"][0]["library"] = "../../evil.so"; }},
      {"two", "stages[1].sha256 is missing",
       [](Json &j) { j["stages"][1].erase("sha256"); }},
      {"two", "stages[1].sha256 must be 64 hex digits",
       [](Json &j) { j["stages"][1]["sha256"] = ""; }},
      {"two", "stages[1].sha256 must be 64 hex digits",
       [](Json &j) { j["stages"][1]["sha256"] = std::string(64, 'G'); }},
      {"two", "stages[0].regions.in.bytes",
       [](Json &j) { j["stages"][0]["regions"]["in"]["bytes"] = -1; }},
      {"two", "stages[0].regions.in",
       [](Json &j) {
         j["stages"][0]["regions"]["in"] = {{"bytes", 1ll << 43},
                                            {"slots", 1 << 20}};
       }},
      {"two", "stages[0].weights[0].offset",
       [](Json &j) { j["stages"][0]["weights"][0]["offset"] = 1 << 20; }},
      {"two", "stages[0].weights[0].offset",
       [](Json &j) { j["stages"][0]["weights"][0]["offset"] = 32; }},
      {"two", "stages[0].weights[0].gradients",
       [](Json &j) { j["stages"][0]["weights"][0]["gradients"][0][1] = -64; }},
      {"two", "stages[0].weights[0].weight",
       [](Json &j) { j["stages"][0]["weights"][0]["weight"] = 99; }},
      {"two", "stages[0].rounded[0].rows is missing",
       [](Json &j) { j["stages"][0]["rounded"] = {{{"offset", 0}}}; }},
      {"two", "stages[0].rounded[0].row",
       [](Json &j) { round(j, {0, 1, 0, 64, 16}); }},
      {"two", "stages[0].rounded[0].rows",
       [](Json &j) { round(j, {0, 1ll << 44, 16, 64, 16}); }},
      {"two", "stages[0].rounded[0].pitch",
       [](Json &j) { round(j, {0, 1, 16, 64, 15}); }},
      {"two", "stages[0].rounded[0].offset",
       [](Json &j) { round(j, {1 << 20, 1, 16, 64, 16}); }},
      {"two", "stages[0].rounded[0].to is 32, not a multiple",
       [](Json &j) { round(j, {0, 1, 8, 32, 8}); }},
      {"two", "stages[0].rounded[0].to is 1048576",
       [](Json &j) { round(j, {0, 1, 16, 1 << 20, 16}); }},
      {"two", "stages[0].rounded[0].to lies before",
       [](Json &j) { round(j, {64, 1, 16, 64, 16}); }},
      {"two", "stages[0].inputs[0].input",
       [](Json &j) { j["stages"][0]["inputs"][0]["input"] = 3; }},
      {"two", "weights[0].bytes",
       [](Json &j) { j["weights"][0]["shape"] = {16, 17}; }},
      {"two", "weights[0].shape",
       [](Json &j) {
         j["weights"][0]["shape"] = {1ll << 40, 1ll << 40, 1ll << 40};
       }},
      {"two", "weights[0].dtype",
       [](Json &j) { j["weights"][0]["dtype"] = "float99"; }},
      {"two", "weights[1].name",
       [](Json &j) { j["weights"][1]["name"] = "W0"; }},
      {"two", "weights[0].source.file",
       [](Json &j) { j["weights"][0]["source"]["file"] = 1; }},
      {"two", "weights[0].source.offset",
       [](Json &j) { j["weights"][0]["source"]["offset"] = 1 << 30; }},
      {"two", "edges[0].to_offset",
       [](Json &j) { j["edges"][0]["to_offset"] = 1 << 30; }},
      {"two", "edges[0].from_stage",
       [](Json &j) { j["edges"][0]["from_stage"] = 2; }},
      {"two", "edges[0].from_region",
       [](Json &j) { j["edges"][0]["from_region"] = "weights"; }},
      {"two", "ranks[0].stages",
       [](Json &j) { j["ranks"][0]["stages"] = {0, 1}; }},
      {"two", "ranks[1].peak_bytes",
       [](Json &j) { j["ranks"][1]["peak_bytes"] = 1; }},
      {"two", "ranks[0].program.kind",
       [](Json &j) { j["ranks"][0]["program"]["kind"] = "dance"; }},
      {"two", "ranks[0].program.actions[0]",
       [](Json &j) { j["ranks"][0]["program"]["actions"][0]["kind"] = "B"; }},
      {"two", "microbatch 3 on stage 0",
       [](Json &j) {
         auto &actions = j["ranks"][0]["program"]["actions"];
         actions.erase(actions.size() - 1);
       }},
      {"two", "ranks[0].program.actions[0].slots.in",
       [](Json &j) {
         j["ranks"][0]["program"]["actions"][0]["slots"]["in"] = 2;
       }},
      {"two", "ranks[0].program.actions[0].slots.in is negative",
       [](Json &j) {
         j["ranks"][0]["program"]["actions"][0]["slots"]["in"] = -1;
       }},
      {"two", "ranks[0].program.actions[0].slots.weights is not a region",
       [](Json &j) {
         j["ranks"][0]["program"]["actions"][0]["slots"]["weights"] = 0;
       }},
      {"two", "ranks[0].program.actions[0].slots.in is missing",
       [](Json &j) {
         j["ranks"][0]["program"]["actions"][0]["slots"].erase("in");
       }},
      {"two", "training.microbatches must be an integer",
       [](Json &j) { j["training"]["microbatches"] = 1.5; }},
      {"two", "training.microbatches must be an integer of 32 bits",
       [](Json &j) { j["training"]["microbatches"] = 1ull << 40; }},
      {"two", "inputs[0].shape",
       [](Json &j) {
         j["inputs"][0]["batch_axis"] = 0;
         j["training"]["microbatch_size"] = 5;
       }},
      {"stream_two", "stages[0].versions",
       [](Json &j) { j["stages"][0]["versions"] = 1; }},
      {"stream_two", "training.microbatches",
       [](Json &j) { j["training"]["microbatches"] = 4; }},
      {"stream_two", "training.clip_norm",
       [](Json &j) { j["training"]["clip_norm"] = 1; }},
      {"stream_two", "strategy.versions",
       [](Json &j) { j["strategy"]["versions"] = "latest"; }},
  };
  for (const Wrong &wrong : cases) {
    SCOPED_TRACE(wrong.field);
    EXPECT_THAT(refusal(wrong.setup, wrong.change),
                testing::HasSubstr(wrong.field));
  }
}

/// Says that the plan has pieces of sequences.
static void cutSequences(Json &j) {
  j["strategy"]["slices"] = 2;
  for (Json &stage : j["stages"])
    stage["tracks"] = false;
}

TEST(Plan, PiecesOfSequencesUseTheWeightsOfTheFirst) {
  const Wrong cases[] = {
      {"two", "strategy.slices is missing",
       [](Json &j) { j["strategy"].erase("slices"); }},
      {"two", "strategy.slices is 0",
       [](Json &j) { j["strategy"]["slices"] = 0; }},
      {"three", "strategy.slices does not divide the number of stages",
       [](Json &j) { j["strategy"]["slices"] = 2; }},
      {"stream_two", "strategy.slices needs one update a step",
       [](Json &j) { j["strategy"]["slices"] = 2; }},
      {"two",
       "stages[1].ranks must be the one rank of stage 0, of whose "
       "sequences it has a piece",
       cutSequences},
      {"chunks", "stages[0].tracks does not go with strategy.slices",
       [](Json &j) {
         j["strategy"]["slices"] = 2;
         j["stages"][0]["tracks"] = true;
       }},
      {"chunks", "stages[2].weights must be empty: stage 0 has them",
       cutSequences},
      {"chunks", "stages[2].regions.weights is in stage 0 already",
       [](Json &j) {
         cutSequences(j);
         for (int stage : {2, 3})
           j["stages"][stage]["weights"] = Json::array();
         j["stages"][2]["regions"].erase("constants");
       }},
  };
  for (const Wrong &wrong : cases) {
    SCOPED_TRACE(wrong.field);
    EXPECT_THAT(refusal(wrong.setup, wrong.change),
                testing::HasSubstr(wrong.field));
  }
}

TEST(Plan, RefusesADeadlock) {
  // Rank 1 wants its backwards before its forwards have sent anything: swap two
  // forwards of different microbatches so that both wait for each other.
  const std::string message = refusal("two", [](Json &j) {
    auto &actions = j["ranks"][0]["program"]["actions"];
    // F0 F1 B0 F2 ...: the backward of 0 before the forward of 0 is sent on.
    ASSERT_EQ(actions[0]["kind"], "F");
    auto &last = j["ranks"][1]["program"]["actions"];
    // Rank 1 waits for microbatch 3 first, whose slot on rank 0 is not free
    // before rank 1 has done the backward of microbatch 0.
    Json moved = Json::array();
    for (auto &action : last)
      if (action["microbatch"] == 3)
        moved.push_back(action);
    for (auto &action : last)
      if (action["microbatch"] != 3)
        moved.push_back(action);
    last = moved;
  });
  EXPECT_THAT(message, testing::HasSubstr("deadlock"));
}

TEST(Plan, RefusesASlotThatIsOverwritten) {
  const std::string message = refusal("two", [](Json &j) {
    for (auto &action : j["ranks"][0]["program"]["actions"])
      action["slots"]["stash"] = 0;
  });
  EXPECT_THAT(message, testing::HasSubstr("overwrites a slot in use"));
}

TEST(Plan, RefusesATieBetweenStagesWithDifferentRounds) {
  Scenario setup = scenarioNamed("stream_2_1");
  setup.tied = true;
  const plan::Plan plan = writePlan(setup, freshFolder("bad"));
  try {
    plan::checkPlan(plan);
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("shares the weight 'e'"));
  }
}

TEST(Plan, SurvivesDamagedFiles) {
  const std::string folder = freshFolder("bad");
  writePlan(scenarioNamed("stream_3_1"), folder);
  const std::string good = read(folder + "/plan.json");
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text = good;
    if (round % 3 == 0)
      text.resize(random() % text.size());
    for (int i = 0; i < 1 + round % 4 && !text.empty(); ++i)
      text[random() % text.size()] = "0123456789-\"[]{},x"[random() % 18];
    std::ofstream(folder + "/plan.json") << text;
    try {
      plan::readPlan(folder);
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::BadPlan) << failure.what();
    }
  }
}

TEST(Plan, SaysWhereItIsCutOff) {
  const std::string folder = freshFolder("cut");
  writePlan(scenarioNamed("two"), folder);
  const std::string path = folder + "/plan.json", text = read(path);
  const size_t third =
      text.find('\n', text.find('\n', text.find('\n') + 1) + 1);
  for (const auto &[wrong, part] :
       {std::pair(text.substr(0, third - 1),
                  path + ":3: not JSON: it ends where more is to come; compile "
                         "again"),
        std::pair(std::string(), path + ":1: not JSON: it ends where more is "
                                        "to come; compile again"),
        std::pair(text.substr(0, third) + " x" + text.substr(third),
                  path + ":3: not JSON: ")}) {
    std::ofstream(path) << wrong;
    try {
      plan::readPlan(folder);
      ADD_FAILURE() << part;
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::BadPlan);
      EXPECT_THAT(failure.what(), testing::StartsWith(part));
      EXPECT_THAT(failure.what(), testing::Not(testing::HasSubstr("json.")));
    }
  }
}

TEST(Plan, SaysWhenThereIsNone) {
  try {
    plan::readPlan(freshFolder("empty"));
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::NoInput);
  }
}

TEST(Sequence, OfAStreamIsPipeDreams) {
  const plan::Plan plan =
      writePlan(scenarioNamed("stream_three"), freshFolder("plan"));
  auto text = [&](int rank, int64_t first, int64_t last) {
    const auto sequence = plan::Sequence::stream(plan, rank, first, last);
    std::string result;
    for (int64_t i = 0; i < sequence.size(); ++i)
      result +=
          sequence.at(i).kind + std::to_string(sequence.at(i).microbatch) + " ";
    return result;
  };
  EXPECT_EQ(text(0, 0, 5), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 ");
  EXPECT_EQ(text(1, 0, 5), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4 ");
  EXPECT_EQ(text(2, 0, 5), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 ");
  EXPECT_EQ(text(0, 6, 8), "F6 F7 B6 B7 ");
  EXPECT_EQ(text(2, 6, 6), "");
}

TEST(Sequence, GivesReplicasTheirMicrobatches) {
  const plan::Plan plan =
      writePlan(scenarioNamed("stream_3_1"), freshFolder("plan"));
  auto text = [&](int rank, int64_t last) {
    const auto sequence = plan::Sequence::stream(plan, rank, 0, last);
    std::string result;
    for (int64_t i = 0; i < sequence.size(); ++i)
      result +=
          sequence.at(i).kind + std::to_string(sequence.at(i).microbatch) + " ";
    return result;
  };
  // floor((3 + 1 - 1) / 3) = 1 forward ahead.
  EXPECT_EQ(text(0, 8), "F0 F3 B0 F6 B3 B6 ");
  EXPECT_EQ(text(1, 8), "F1 F4 B1 F7 B4 B7 ");
  EXPECT_EQ(text(2, 8), "F2 F5 B2 B5 ");
  EXPECT_EQ(text(3, 3), "F0 B0 F1 B1 F2 B2 ");
}

TEST(Sha256, MatchesThePublishedVectors) {
  auto digest = [](const std::string &text) {
    Sha256 sha;
    sha.add(text.data(), text.size());
    return sha.hex();
  };
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca4959"
                        "91b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb41"
                           "0ff61f20015ad");
  EXPECT_EQ(digest(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

} // namespace
} // namespace pipec::test
