//===- FitMessagesTest.cpp - what taking a message costs ------------------===//
#include "compiler/plan/FitMessages.h"

#include "support/Failure.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pipec::plan {
namespace {

using Json = nlohmann::json;

std::vector<MessageGap> gapsWith(const MessageCost &cost, double turn) {
  std::vector<MessageGap> gaps;
  for (int64_t bytes : {16'384, 65'536, 262'144})
    gaps.push_back({bytes, turn + cost.takeSeconds +
                               static_cast<double>(bytes) / cost.bandwidth});
  return gaps;
}

TEST(FitMessages, FindsWhatTheGapsWereMadeWith) {
  for (const MessageCost &truth :
       {MessageCost{8e-6, 2e10}, MessageCost{0, 5e9}}) {
    const MessageCost found = fitMessages(gapsWith(truth, 1e-6), 1e-6);
    EXPECT_NEAR(found.takeSeconds, truth.takeSeconds, 1e-9);
    EXPECT_NEAR(found.bandwidth / truth.bandwidth, 1, 1e-3);
  }
}

TEST(FitMessages, NeitherPartIsBelowZero) {
  // Larger messages that take less, and a line through less than nothing.
  const MessageCost flat = fitMessages({{16'384, 9e-6}, {262'144, 8e-6}}, 1e-6);
  EXPECT_NEAR(flat.takeSeconds, 7.4e-6, 4e-7);
  EXPECT_GE(flat.bandwidth, 1e12);
  const MessageCost steep =
      fitMessages({{16'384, 2e-6}, {262'144, 41e-6}}, 1e-6);
  EXPECT_EQ(steep.takeSeconds, 0);
  EXPECT_GT(steep.bandwidth, 262'144 / 41e-6);
}

TEST(FitMessages, NeedsTwoSizes) {
  for (const std::vector<MessageGap> &gaps :
       {std::vector<MessageGap>{}, {{4096, 1e-6}, {4096, 2e-6}}})
    EXPECT_THROW(fitMessages(gaps, 0), Failure);
}

Json task(int step, int rank, const char *kind, int microbatch, double begin,
          double end, int row = 0) {
  return {
      {"ph", "X"},
      {"name", kind + (" " + std::to_string(microbatch))},
      {"pid", rank},
      {"tid", row},
      {"ts", begin},
      {"dur", end - begin},
      {"args", {{"step", step}, {"stage", rank}, {"microbatch", microbatch}}}};
}

/// Steps of two forwards whose messages come, the one while the second rank
/// works and the other 5 us before it has done:
///   0 |F0F1----------
///   1 |--F0====F1====
std::string traceOf(double gap, double between) {
  Json events = Json::array();
  events.push_back(
      {{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"tid", 0}});
  for (int step = 0; step < 20; ++step) {
    const double at = 1000 * step, late = step < 10 ? between : 400;
    events.push_back(task(step, 0, "forward", 0, at, at + 100));
    events.push_back(task(step, 0, "forward", 1, at + 101, at + late));
    events.push_back(task(step, 1, "forward", 0, at + 110, at + 300));
    events.push_back(
        task(step, 1, "forward", 1, at + std::max(300., late) + gap, at + 600));
    events.push_back(task(step, 1, "forward", 7, at, at + 1, 1)); // predicted
  }
  return Json{{"traceEvents", events}}.dump();
}

TEST(FitMessages, ReadsGapsBehindWhichAMessageLay) {
  const auto gaps = messageGaps(traceOf(12, 200), 1000, 2000);
  ASSERT_EQ(gaps.size(), 1u); // no task takes anything backward
  EXPECT_EQ(gaps[0].bytes, 1000);
  EXPECT_NEAR(gaps[0].seconds, 12e-6, 1e-9);
}

TEST(FitMessages, WhatWasWaitedForIsNoGap) {
  EXPECT_TRUE(messageGaps(traceOf(12, 295), 1000, 2000).empty());
  // Sent before the task: taken before it, too, perhaps.
  EXPECT_TRUE(messageGaps(traceOf(12, 105), 1000, 2000).empty());
}

/// Two forwards, of which the second's message comes 4 us before the first has
/// ended on the second rank, which is `gap` us later at the other:
///   0 |F0F1------
///   1 |--F0==F1====
void addForwards(Json &events, int step, double gap) {
  const double at = 1000 * step;
  events.push_back(task(step, 0, "forward", 0, at, at + 100));
  events.push_back(task(step, 0, "forward", 1, at + 101, at + 196));
  events.push_back(task(step, 1, "forward", 0, at + 110, at + 200));
  events.push_back(task(step, 1, "forward", 1, at + 200 + gap, at + 300));
}

/// Whichever direction has more gaps: 0.2 us behind forwards, 1 us behind the
/// gradients, of which there are fewer.
TEST(FitMessages, DirectionsCountAlike) {
  Json events = Json::array();
  for (int step = 0; step < 20; ++step) {
    const double at = 1000 * step;
    addForwards(events, step, 1.2);
    if (step % 2)
      continue;
    events.push_back(task(step, 1, "backward", 0, at + 310, at + 400));
    events.push_back(task(step, 0, "forward", 2, at + 320, at + 410));
    events.push_back(task(step, 0, "backward", 0, at + 412, at + 450));
  }
  const std::string trace = Json{{"traceEvents", events}}.dump();
  EXPECT_NEAR(noteCost(trace, 1e-6).takeSeconds, 0.6e-6, 1e-9);
}

/// A third message comes 30 us behind all the second rank's tasks:
///   0 |F0F1----F2--------
///   1 |--F0==F1====----F2
TEST(FitMessages, WhatIsLookedForIsSeen) {
  Json events = Json::array();
  for (int step = 0; step < 20; ++step) {
    const double at = 1000 * step;
    addForwards(events, step, 1.4);
    events.push_back(task(step, 0, "forward", 2, at + 200, at + 330));
    events.push_back(task(step, 1, "forward", 2, at + 331.9, at + 400));
  }
  const std::string trace = Json{{"traceEvents", events}}.dump();
  const NoteCost cost = noteCost(trace, 1e-6);
  EXPECT_NEAR(cost.takeSeconds, 0.4e-6, 1e-9);
  EXPECT_NEAR(cost.seenSeconds, 0.5e-6, 1e-9);
  // Turns that are said to be longer leave nothing for messages.
  EXPECT_EQ(noteCost(trace, 5e-6).takeSeconds, 0);
  EXPECT_EQ(noteCost(trace, 5e-6).seenSeconds, 0);
  // Of a trace without messages nothing is known.
  EXPECT_EQ(noteCost(R"({"traceEvents": []})", 0).seenSeconds,
            DeviceModel().seenSeconds);
  EXPECT_THROW(noteCost("[]", 0), Failure);
}

TEST(FitMessages, AStepEndsWhereTheNextBegins) {
  // Steps of 1,000 us, of which rank 0 works 400.
  EXPECT_NEAR(stepEnd(traceOf(12, 400), 1e-6), 599e-6, 1e-9);
  EXPECT_EQ(stepEnd(traceOf(12, 400), 1e-3), 0);
  // Then it sums gradients and updates, which has costs of its own.
  Json trace = Json::parse(traceOf(12, 400));
  for (int step = 0; step < 20; ++step)
    for (Json &event :
         std::vector<Json>{task(step, 0, "gradient sums", 0, 420, 430),
                           task(step, 0, "update", 0, 440, 490)}) {
      event["ts"] = event["ts"].get<double>() + 1000 * step;
      event["args"].erase("stage");
      trace["traceEvents"].push_back(event);
    }
  for (Json &event : trace["traceEvents"])
    if (event["name"].get<std::string>().rfind("update", 0) == 0)
      event["name"] = "update";
  EXPECT_NEAR(stepEnd(trace.dump(), 0), 550e-6, 1e-9);
  EXPECT_THROW(stepEnd(R"({"traceEvents": []})", 0), Failure);
  EXPECT_THROW(stepEnd("[]", 0), Failure);
}

TEST(FitMessages, WhatIsNoTraceIsRefused) {
  for (const char *text : {"", "{}", "[1]", R"({"traceEvents": [{}]})",
                           R"({"traceEvents": [{"ph": 1, "tid": 0}]})"})
    try {
      messageGaps(text, 1, 1);
      // Events of another kind mean nothing.
      EXPECT_STREQ(text, R"({"traceEvents": [{"ph": 1, "tid": 0}]})");
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, Exit::BadModel) << text;
    }
}

} // namespace
} // namespace pipec::plan
