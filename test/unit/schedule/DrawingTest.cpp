// Each generator draws its schedule in its comment:
//
//   NAME, P = 4, M = 8:
//   0 |F0F1…
//
// one line a device, two columns for a stage's forward, one where that is too
// wide. Here the drawings are
// held against the generators, and no row may be without one.
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Render.h"
#include "compiler/schedule/Simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

using namespace pipec::schedule;

namespace {

struct Drawing {
  int microbatches = 0;
  std::string text;
};

/// The drawings of all comments, by schedule.
std::map<std::string, Drawing> drawings() {
  std::map<std::string, Drawing> found;
  const std::regex title(R"(^//   ([a-z0-9-]+), P = 4, M = (\d+):$)");
  for (const auto &entry :
       std::filesystem::directory_iterator(PIPEC_GENERATORS)) {
    std::ifstream file(entry.path());
    Drawing *open = nullptr;
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (std::regex_match(line, match, title)) {
        open = &found[match[1]];
        open->microbatches = std::stoi(match[2]);
      } else if (open && line.rfind("//   ", 0) == 0) {
        open->text += line.substr(5) + "\n";
      } else {
        open = nullptr;
      }
    }
  }
  return found;
}

std::string draw(const std::string &name, int microbatches) {
  ScheduleRequest request;
  request.devices = 4;
  request.microbatches = microbatches;
  Schedule schedule = generate(name, request);
  RenderOptions options;
  options.width = 1000;
  Timeline line = simulate(schedule, costsFor(schedule, request));
  double column = schedule.slices * std::max(1, schedule.stages / 4);
  options.columnsPerUnit =
      2 * column * line.makespan > 72 ? column : 2 * column;
  return renderTimeline(schedule, line, options);
}

std::string legendOf(const std::string &name, int chunks) {
  ScheduleRequest request;
  request.devices = request.microbatches = 4;
  request.chunks = chunks;
  return timelineLegend(generate(name, request));
}

TEST(Drawings, HaveTheirLettersExplained) {
  EXPECT_EQ(legendOf("1f1b", 0), "F forward, B backward\n");
  EXPECT_EQ(legendOf("zb-h1", 0),
            "F forward, I input gradient, W weight gradient\n");
  EXPECT_EQ(legendOf("interleaved-1f1b", 2),
            "F forward, B backward; lower case: its 2nd, 4th … stage\n");
}

TEST(Drawings, AreTrue) {
  auto found = drawings();
  for (const ScheduleRow &row : schedules()) {
    auto drawing = found.find(row.name);
    if (drawing == found.end()) {
      ADD_FAILURE() << row.name << " has no drawing";
      continue;
    }
    std::string is = draw(row.name, drawing->second.microbatches);
    EXPECT_EQ(drawing->second.text, is) << row.name << " is\n" << is;
    found.erase(drawing);
  }
  for (const auto &[name, drawing] : found)
    ADD_FAILURE() << name << " is drawn, but no schedule";
}

} // namespace
