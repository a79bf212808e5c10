//===- Charts.h - the pictures of the page ----------------------*- C++ -*-===//
#pragma once

#include "report/Measured.h"
#include "report/Prediction.h"
#include "runtime/program/Plan.h"

#include <string>

namespace pipec::report {

/// Width of every picture; the page scales it down where there is less room.
constexpr double kChartWidth = 1060;

/// One row a rank, one box a task. `span_s` is the time that the width stands
/// for, so that two timelines can share a scale.
std::string predictedTimeline(const Prediction &prediction, double span_s);
std::string measuredTimeline(const MeasuredRun &run, double span_s);
/// The end of the last measured task, 0 without any.
double measuredSpan(const MeasuredRun &run);

/// One bar a group of equal ranks, in parts, with what was measured marked.
std::string memoryBars(const plan::Plan &plan, const MeasuredRun *run);
/// What the parts of memoryBars are, as HTML.
std::string memoryLegend();

/// Bytes in use over the step on one rank.
std::string memoryCurve(const plan::Plan &plan, int rank,
                        const Prediction &prediction);

/// Loss over steps.
std::string lossCurve(const MeasuredRun &run);

} // namespace pipec::report
