//===- Report.h - a plan for people -----------------------------*- C++ -*-===//
//
// Everything here is a function of the plan (and, after a run, of what was
// measured): equal plans give equal bytes. Nothing is computed that the plan
// does not state, except the timeline, which follows from orders and costs.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "report/Measured.h"
#include "runtime/program/Plan.h"

#include <string>

namespace pipec::report {

struct TextOptions {
  int width = 100;    ///< columns of the terminal
  bool color = false; ///< ANSI colors in the timeline
};

/// One screen about a plan: model, training, stages, memory, schedule,
/// prediction, baselines. Long tables are cut and say so.
std::string summary(const plan::Plan &plan, const TextOptions &options = {});

/// Everything: as summary, but uncut, with inputs, transfers and tensors.
std::string inspectText(const plan::Plan &plan,
                        const TextOptions &options = {});

/// The same as one JSON object: {"model", "training", "strategy", "stages",
/// "ranks", "transfers", "predicted", "baselines", "timeline": {"step_s",
/// "ranks": [[{"kind", "stage", "microbatch", "start_s", "end_s"}]]}}.
std::string inspectJson(const plan::Plan &plan);

/// Predicted beside measured: step time, samples/s, peak memory of every rank.
std::string runSummary(const plan::Plan &plan, const MeasuredRun &run);

/// The report as one page that needs nothing from elsewhere.
std::string htmlPage(const plan::Plan &plan, const MeasuredRun *run = nullptr);

/// Writes htmlPage to `path` (to a temporary file first, so that a reader
/// never sees half a page). Throws Failure(CannotWrite).
void writeReport(const plan::Plan &plan, const std::string &path,
                 const MeasuredRun *run = nullptr);

} // namespace pipec::report
