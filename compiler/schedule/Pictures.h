//===- Pictures.h - a schedule as a page and as a trace ---------*- C++ -*-===//
#pragma once

#include "compiler/schedule/Simulator.h"

#include <string>

namespace pipec::schedule {

/// One HTML page without outside references: figures, the timeline (zoom with
/// the wheel, drag to move, hover for a task) and memory over time.
std::string renderHtml(const Schedule &schedule, const Costs &costs,
                       const Timeline &timeline);

/// A trace for Perfetto or chrome://tracing: a thread per device with its
/// tasks, a counter with its memory. One unit of time is shown as `scale`
/// microseconds.
std::string renderPerfetto(const Schedule &schedule, const Timeline &timeline,
                           double scale = 1);

} // namespace pipec::schedule
