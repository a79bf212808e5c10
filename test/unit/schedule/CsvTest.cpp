// The CSV of PyTorch's pipelining: round trips and exact error places.
#include "compiler/schedule/Csv.h"
#include "compiler/schedule/Generator.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::schedule;

namespace {

std::string failureOf(const std::string &text) {
  try {
    readCsv(text, "s.csv");
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::BadPlan);
    return failure.what();
  }
  return "accepted";
}

TEST(Csv, WritesOneLinePerDevice) {
  ScheduleRequest request;
  request.devices = 2;
  request.microbatches = 2;
  EXPECT_EQ(writeCsv(generate("1f1b", request)),
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(Csv, RoundTripsEverySchedule) {
  for (const ScheduleRow &row : schedules()) {
    ScheduleRequest request;
    request.devices = 4;
    request.microbatches = 8;
    Schedule schedule = generate(row.name, request);
    Schedule again = readCsv(writeCsv(schedule));
    EXPECT_EQ(again.order, schedule.order) << row.name;
    EXPECT_EQ(again.placement, schedule.placement) << row.name;
    EXPECT_EQ(again.stages, schedule.stages) << row.name;
    EXPECT_EQ(again.microbatches, schedule.microbatches) << row.name;
  }
}

TEST(Csv, FindsReplicas) {
  ScheduleRequest request;
  request.devices = 4;
  request.microbatches = 6;
  request.replicas = {3, 1};
  Schedule again = readCsv(writeCsv(generate("1f1b", request)));
  EXPECT_EQ(again.placement, (std::vector<std::vector<int>>{{0, 1, 2}, {3}}));
}

TEST(Csv, SkipsIdleCellsAndSpaces) {
  Schedule schedule = readCsv("0F0, ,0I0,,0W0\r\n,1F0,1B0,\n");
  ASSERT_EQ(schedule.order.size(), 2u);
  EXPECT_EQ(
      schedule.order[0],
      (std::vector<Action>{{Kind::F, 0, 0}, {Kind::I, 0, 0}, {Kind::W, 0, 0}}));
  EXPECT_EQ(schedule.order[1],
            (std::vector<Action>{{Kind::F, 1, 0}, {Kind::B, 1, 0}}));
}

TEST(Csv, ReadsPairs) {
  std::string text = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n";
  Schedule schedule = readCsv(text);
  EXPECT_EQ(writeCsv(schedule), "0F0,0F1,0B0,0B1\n");
  EXPECT_EQ(schedule.pairs, (std::vector<std::vector<int>>{{1}}));
  EXPECT_EQ(failureOf("0F0,(0F1;0X0)OVERLAP_F_B\n"),
            "s.csv:1:10: '0X0': wanted <stage><F|B|I|W><microbatch> such as "
            "3F11");
  EXPECT_EQ(failureOf("0F0,(0F1)OVERLAP_F_B\n"),
            "s.csv:1:5: '(0F1)OVERLAP_F_B': wanted a pair such as "
            "(0F4;7B3)OVERLAP_F_B");
}

TEST(Csv, NamesLineAndColumn) {
  EXPECT_EQ(failureOf("0F0,0B0\n1F0,1X0\n"),
            "s.csv:2:5: '1X0': wanted <stage><F|B|I|W><microbatch> such as "
            "3F11");
  EXPECT_EQ(failureOf("0F0,0B0x\n"),
            "s.csv:1:5: '0B0x': wanted <stage><F|B|I|W><microbatch> such as "
            "3F11");
  EXPECT_EQ(failureOf("-1F0\n"), "s.csv:1:1: '-1F0': wanted "
                                 "<stage><F|B|I|W><microbatch> such as 3F11");
  EXPECT_EQ(failureOf("0F99999999999999\n"),
            "s.csv:1:1: '0F99999999999999': wanted "
            "<stage><F|B|I|W><microbatch> such as 3F11");
  EXPECT_EQ(failureOf("0F20000000\n"),
            "s.csv:1:1: '0F20000000': number too large");
  EXPECT_EQ(failureOf(std::string("0F0\0,0B0\n", 9)),
            "s.csv:1:1: '0F0?': wanted <stage><F|B|I|W><microbatch> such as "
            "3F11");
  EXPECT_EQ(readCsv("\xef\xbb\xbf"
                    "0F0,0B0\r\n",
                    "s.csv")
                .order[0]
                .size(),
            2u);
  EXPECT_EQ(failureOf(""), "s.csv:1:1: no action in the file");
  EXPECT_EQ(failureOf("0F0,2F0,2B0,0B0\n"),
            "s.csv: stage 1 is on no line, but stage 2 is");
  EXPECT_EQ(failureOf("0F0,0B9\n"),
            "s.csv: stage 0 or microbatch 9 is named, but there are only 2 "
            "actions");
}

std::string refusalOf(const std::string &text,
                      const VerifyOptions &options = {}) {
  try {
    verifyCsv(readCsv(text, "s.csv"), text, options);
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::BadPlan);
    return failure.what();
  }
  return "accepted";
}

TEST(Csv, NamesThePlaceOfABrokenRule) {
  EXPECT_EQ(refusalOf("0F0,0B0\n1F0,1B0\n"), "accepted");
  // Cells are counted as they stand, empty ones and spaces included.
  EXPECT_EQ(refusalOf("0F0,0B0\n, 1B0,1F0\n"),
            "s.csv:2:3: dependency: device 1: 1B0 stands before 1F0");
  EXPECT_EQ(refusalOf("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n"),
            "s.csv:2: missing task: device 1: 1B1 is missing");
  EXPECT_EQ(refusalOf("0F0,0F1,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"),
            "s.csv:1:13: duplicate task: device 0: 0F1 is there twice");
  VerifyOptions options;
  options.messages = MessageOrder::PerEdge;
  EXPECT_EQ(refusalOf("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", options),
            "s.csv:2:1: message order: device 1: 1F1 takes the result of stage "
            "0 microbatch 1 but device 0 sends that of 0F0 first");
}

} // namespace
