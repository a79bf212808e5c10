//===- Render.h - a schedule as text ----------------------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/Simulator.h"

#include <string>

namespace pipec::schedule {

struct RenderOptions {
  int width = 100;    ///< columns a line may take
  bool color = false; ///< ANSI colors
  int devices = 64;   ///< lines shown at most
  /// Columns of one unit of time; 0: as many as fit.
  double columnsPerUnit = 0;
};

/// One line per device. A task is its letter, then its microbatch, then '='
/// to its end; letters of odd chunks are lower case, '.' is idle time. Tasks
/// too short for letter and number show the letter; when several share a
/// column, it shows the kind that fills most of it.
std::string renderTimeline(const Schedule &schedule, const Timeline &timeline,
                           const RenderOptions &options = {});

/// What the letters of such a picture stand for, in a line: of those alone that
/// the schedule has.
std::string timelineLegend(const Schedule &schedule);

} // namespace pipec::schedule
