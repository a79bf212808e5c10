//===- Render.h - pictures of a schedule ------------------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/Simulator.h"

#include <string>

namespace pipec::schedule {

struct RenderOptions {
  int width = 100;    ///< columns the text may take
  bool color = false; ///< ANSI colors
};

/// One line per device plus a scale. When a time unit gets at least two
/// columns, tasks show their microbatch number; otherwise letters only.
std::string renderTimeline(const Schedule &schedule, const Timeline &timeline,
                           const RenderOptions &options = {});

} // namespace pipec::schedule
