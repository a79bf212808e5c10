//===- PageTest.cpp - the offline page -----------------------------------===//
#include "SamplePlan.h"
#include "report/Prediction.h"
#include "report/Report.h"
#include "support/Failure.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace pipec::report {

using testing::HasSubstr;
using testing::Not;

namespace {

MeasuredRun sampleRun(const plan::Plan &plan) {
  MeasuredRun run;
  run.steps = 20;
  run.step_s = 0.02;
  run.samples_per_s = 800;
  for (int i = 0; i < 20; ++i)
    run.losses.push_back(5.0 / (1 + i));
  for (const plan::Rank &rank : plan.ranks)
    run.ranks.push_back({rank.rank,
                         rank.peak_bytes,
                         1 << 24,
                         0.01,
                         {{'F', rank.stages[0], 0, 0, 0.004},
                          {'U', rank.stages[0], 0, 0.015, 0.016}},
                         0});
  return run;
}

/// The first tag that is closed without being the last one opened, or never
/// closed; empty when all is well.
std::string firstUnbalancedTag(const std::string &html) {
  static const std::set<std::string> kVoid = {"meta", "br", "!DOCTYPE"};
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos;
       at = html.find('<', at + 1)) {
    const std::string tag = html.substr(at + 1, html.find('>', at) - at - 1);
    const bool closes = tag.starts_with("/");
    const std::string name =
        tag.substr(closes, tag.find_first_of(" />", closes) - closes);
    if (kVoid.count(name) || tag.ends_with("/"))
      continue;
    if (!closes) {
      open.push_back(name);
      continue;
    }
    if (open.empty() || open.back() != name)
      return "<" + tag + ">";
    open.pop_back();
  }
  return open.empty() ? "" : "<" + open.back() + ">";
}

size_t countOf(const std::string &text, const std::string &part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++n;
  return n;
}

} // namespace

TEST(Page, NeedsNothingFromElsewhere) {
  plan::Plan plan = samplePlan();
  MeasuredRun run = sampleRun(plan);
  std::string html = htmlPage(plan, &run);
  for (const char *outside :
       {"http", "src=", "href=", "url(", "@import", "<script"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
}

TEST(Page, IsWellFormed) {
  for (bool stream : {false, true}) {
    plan::Plan plan = samplePlan({4, 8, 2, stream});
    MeasuredRun run = sampleRun(plan);
    EXPECT_EQ(firstUnbalancedTag(htmlPage(plan, &run)), "");
    EXPECT_EQ(firstUnbalancedTag(htmlPage(plan)), "");
  }
}

TEST(Page, EscapesNames) {
  std::string html = htmlPage(samplePlan());
  EXPECT_THAT(html, HasSubstr("sample &lt;1&gt;.onnx"));
  EXPECT_THAT(html, Not(HasSubstr("<1>")));
}

TEST(Page, DrawsEveryTask) {
  std::string html = htmlPage(samplePlan({4, 8}));
  EXPECT_EQ(countOf(html, "class=\"task F\""), 32u);
  EXPECT_EQ(countOf(html, "class=\"task B\""), 32u);
  EXPECT_THAT(html, HasSubstr("forward, stage 2, microbatch 5"));
}

TEST(Page, SplitsBackwardOnlyWhereThePlanDoes) {
  plan::Plan plan = samplePlan();
  EXPECT_THAT(htmlPage(plan), HasSubstr(">backward</th>"));
  plan.stages[1].split_backward = true;
  EXPECT_THAT(htmlPage(plan), HasSubstr(">weight gradient</th>"));
}

TEST(Page, ManyTasksStaySmall) {
  std::string html = htmlPage(samplePlan({64, 256}));
  EXPECT_LT(html.size(), 3u << 20);
  EXPECT_EQ(firstUnbalancedTag(html), "");
}

TEST(Page, ShowsTheRunBesideThePrediction) {
  plan::Plan plan = samplePlan();
  EXPECT_THAT(htmlPage(plan), Not(HasSubstr(", measured")));
  MeasuredRun run = sampleRun(plan);
  std::string html = htmlPage(plan, &run);
  EXPECT_THAT(html, HasSubstr("equal to the byte"));
  EXPECT_THAT(html, HasSubstr("<h3>Loss</h3>"));
  EXPECT_THAT(html, HasSubstr("1.63x")); // 20 ms against 12.3 ms
  EXPECT_THAT(html, HasSubstr("update, stage 3"));
}

TEST(Page, SameInputsSameBytes) {
  EXPECT_EQ(htmlPage(samplePlan()), htmlPage(samplePlan()));
}

TEST(Page, SurvivesOddRuns) {
  plan::Plan plan = samplePlan();
  MeasuredRun run;
  run.steps = 1;
  run.losses = {std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(firstUnbalancedTag(htmlPage(plan, &run)), "");
  run.losses = {1, 1, 1};
  EXPECT_THAT(htmlPage(plan, &run), HasSubstr("<h3>Loss</h3>"));
}

TEST(WriteReport, WritesTheFileOrSaysWhyNot) {
  std::string folder = testing::TempDir() + "report-test";
  std::filesystem::create_directories(folder);
  writeReport(samplePlan(), folder + "/report.html");
  std::ifstream file(folder + "/report.html");
  std::stringstream content;
  content << file.rdbuf();
  EXPECT_EQ(content.str(), htmlPage(samplePlan()));
  try {
    writeReport(samplePlan(), "/proc/missing/report.html");
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::CannotWrite);
    EXPECT_THAT(failure.what(), HasSubstr("missing/report.html"));
  }
  std::filesystem::remove_all(folder);
}

//===----------------------------------------------------------------------===//
// The timeline behind it
//===----------------------------------------------------------------------===//

TEST(Prediction, MemoryReachesThePeakAndReturns) {
  plan::Plan plan = samplePlan();
  auto prediction = predict(plan);
  ASSERT_TRUE(prediction);
  for (const plan::Rank &rank : plan.ranks) {
    auto points = memoryOverTime(plan, rank.rank, *prediction);
    int64_t most = 0;
    for (const MemoryPoint &point : points)
      most = std::max(most, point.bytes);
    EXPECT_EQ(most, rank.peak_bytes) << rank.rank;
    EXPECT_EQ(points.back().bytes, rank.peak_bytes - rank.stash_bytes);
  }
}

TEST(Prediction, AStreamBecomesSteady) {
  plan::Plan plan = samplePlan({4, 8, 2, true});
  EXPECT_EQ(streamWindow(plan), 24);
  auto prediction = predict(plan);
  EXPECT_EQ(prediction->schedule.order[0].size(), 24u);
}

} // namespace pipec::report
