//===- ProgressTest.cpp - phases, and the line that shows them ------------===//
#include "support/Phase.h"
#include "support/ProgressLine.h"
#include "support/TerminalProgress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

namespace pipec {
namespace {

using Texts = std::vector<std::string>;

/// A screen and a clock that a test sets.
class Progress : public testing::Test {
protected:
  /// Looks at the line, and what has been written since the last time.
  std::string lookAt(double seconds) {
    time = seconds;
    line->look();
    return std::exchange(written, "");
  }
  std::string print(const std::string &text) {
    line->makeWay(text, [&] { written += text; });
    return std::exchange(written, "");
  }

  double time = 0;
  int columns = 80;
  std::string written;
  std::unique_ptr<ProgressLine> line = std::make_unique<ProgressLine>(
      ProgressLine::Screen{[this] { return time; }, [this] { return columns; },
                           [this](const std::string &t) { written += t; }});
};

TEST(Phases, NobodyListens) {
  Phase phase("planning", 3);
  phase.next();
  EXPECT_EQ(phasesUnderWay(), Texts{});
  const Phase::Audience audience;
  EXPECT_EQ(phasesUnderWay(), Texts{}); // had begun before
}

TEST(Phases, LieInEachOther) {
  const Phase::Audience audience;
  const Phase outer("planning");
  {
    Phase each("strategy", 24), open("plan"),
        share("searching", Phase::kPercent);
    EXPECT_EQ(phasesUnderWay(),
              (Texts{"planning", "strategy", "plan", "searching 0 %"}));
    for (int i = 0; i < 7; ++i)
      each.next(), open.next();
    share.at(45);
    Phase alone("shape", 1);
    alone.next();
    EXPECT_EQ(phasesUnderWay(), (Texts{"planning", "strategy 7 of 24", "plan 7",
                                       "searching 45 %", "shape"}));
  }
  EXPECT_EQ(phasesUnderWay(), Texts{"planning"});
}

TEST(Phases, EndInAnyOrder) {
  const Phase::Audience audience;
  std::optional<Phase> a(std::in_place, "a"), b(std::in_place, "b");
  const Phase c("c");
  a.reset();
  EXPECT_EQ(phasesUnderWay(), (Texts{"b", "c"}));
  b.reset();
  EXPECT_EQ(phasesUnderWay(), Texts{"c"});
}

TEST(Phases, OfSeveralThreads) {
  const Phase::Audience audience;
  std::atomic<bool> ending{false};
  std::thread reader([&] {
    while (!ending)
      for (const std::string &text : phasesUnderWay())
        ASSERT_EQ(text.substr(0, 4), "work");
  });
  std::vector<std::thread> workers;
  for (int t = 0; t < 3; ++t)
    workers.emplace_back([] {
      for (int i = 0; i < 2000; ++i) {
        Phase phase("work", 10);
        phase.next();
      }
    });
  for (std::thread &worker : workers)
    worker.join();
  ending = true;
  reader.join();
  EXPECT_EQ(phasesUnderWay(), Texts{});
}

TEST_F(Progress, WaitsForASecond) {
  const Phase phase("planning");
  EXPECT_EQ(lookAt(0), "");
  EXPECT_EQ(lookAt(0.99), "");
  EXPECT_EQ(lookAt(1), "\rplanning · 1.0 s\x1b[K");
}

TEST_F(Progress, TenTimesASecondAtMost) {
  const Phase phase("planning");
  int lines = 0;
  for (int i = 0; i < 3000; ++i)
    lines += !lookAt(1e-3 * i).empty();
  EXPECT_GE(lines, 19);
  EXPECT_LE(lines, 21);
}

TEST_F(Progress, GoesWithTheLastPhase) {
  {
    const Phase phase("planning");
    EXPECT_NE(lookAt(2), "");
  }
  EXPECT_EQ(lookAt(3), "\r\x1b[K");
  EXPECT_EQ(lookAt(4), "");
}

TEST_F(Progress, LeavesACleanScreen) {
  const Phase phase("planning");
  lookAt(2);
  line.reset();
  EXPECT_EQ(written, "\r\x1b[K");
}

TEST_F(Progress, MakesWayForOtherText) {
  const Phase phase("planning");
  EXPECT_EQ(print("early\n"), "early\n");
  lookAt(2);
  EXPECT_EQ(print("a note\n"), "\r\x1b[Ka note\n");
  EXPECT_EQ(print("another\n"), "another\n");
  EXPECT_EQ(lookAt(3), "\rplanning · 3.0 s\x1b[K");
}

TEST_F(Progress, NeverAmidText) {
  const Phase phase("planning");
  print("a question? ");
  EXPECT_EQ(lookAt(2), "");
  print("");
  EXPECT_EQ(lookAt(3), "");
  print("yes\n");
  EXPECT_EQ(lookAt(4), "\rplanning · 4.0 s\x1b[K");
}

TEST_F(Progress, NothingInTheBackground) {
  const Phase phase("planning");
  columns = 0;
  EXPECT_EQ(lookAt(2), "");
  columns = 80;
  EXPECT_NE(lookAt(3), "");
}

TEST(ProgressText, Sentence) {
  EXPECT_EQ(progressText({"planning"}, 3.24, 80), "planning · 3.2 s");
  EXPECT_EQ(progressText({"planning", "strategy 7 of 24"}, 3, 80),
            "planning: strategy 7 of 24 · 3.0 s");
  EXPECT_EQ(progressText({"planning", "strategy 7 of 24", "zb-v"}, 59.94, 80),
            "planning: strategy 7 of 24, zb-v · 59.9 s");
  EXPECT_EQ(progressText({"planning"}, 65, 80), "planning · 1 min 05 s");
  EXPECT_EQ(progressText({"planning"}, 7205, 80), "planning · 120 min 05 s");
}

TEST(ProgressText, FitsTheTerminal) {
  const Texts phases{"planning", "strategy 7 of 24", "zb-v"};
  // The last column stays free; what lies deepest goes first.
  EXPECT_EQ(progressText(phases, 3, 41),
            "planning: strategy 7 of 24, zb-v · 3.0 s");
  EXPECT_EQ(progressText(phases, 3, 40), "planning: strategy 7 of 24 · 3.0 s");
  EXPECT_EQ(progressText(phases, 3, 34), "planning · 3.0 s");
  EXPECT_EQ(progressText({"a long description"}, 3, 20), "a long des… · 3.0 s");
  EXPECT_EQ(progressText(phases, 3, 18), "planning");
  EXPECT_EQ(progressText(phases, 3, 6), "plan…");
  EXPECT_EQ(progressText(phases, 3, 2), "…");
  EXPECT_EQ(progressText(phases, 3, 1), "");
}

TEST(ProgressText, CharactersOfSeveralBytes) {
  EXPECT_EQ(progressText({"Größe der Stufe"}, 3, 20), "Größe der … · 3.0 s");
  EXPECT_EQ(progressText({"\u5927\u5927\u5927\u5927\u5927"}, 3, 8),
            "\u5927\u5927\u5927…");
}

/// Names come from files.
TEST(ProgressText, MovesNoCursor) {
  EXPECT_EQ(progressText({"file:\x1b[2J\n"}, 3, 80),
            "file:\\x1b[2J\\x0a · 3.0 s");
}

/// Tests run without a terminal.
TEST(TerminalProgress, NothingInAPipe) {
  testing::internal::CaptureStderr();
  std::streambuf *const before = std::cout.rdbuf();
  {
    const TerminalProgress progress(/*quiet=*/false);
    EXPECT_EQ(std::cout.rdbuf(), before);
    const Phase phase("planning");
    EXPECT_EQ(phasesUnderWay(), Texts{});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

} // namespace
} // namespace pipec
