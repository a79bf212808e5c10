//===- Results.h - what is known after a run --------------------*- C++ -*-===//
#pragma once

#include "report/Measured.h"
#include "runtime/exec/Recorder.h"
#include "runtime/program/Plan.h"
#include "runtime/run/Metrics.h"

#include <string>
#include <vector>

namespace pipec {

/// What one rank reports.
struct RankResult {
  RankFigures figures;
  int64_t droppedEvents = 0;
  std::vector<TaskTotal> totals;
  std::vector<Event> events; ///< times on rank 0's clock
};

/// As bytes, to send; and back.
std::string pack(const RankResult &result);
RankResult unpack(const std::string &bytes);

/// Everything, at rank 0.
struct Results {
  int64_t firstStep = 0;
  std::vector<double> losses, seconds; ///< by step, from firstStep
  int64_t samples = 0; ///< of a pass without updates: `losses` is then one, or
                       ///< none
  std::vector<RankResult> ranks;
  int64_t drawnStep = 0, drawnSteps = 1; ///< the steps of the timeline
};

/// The steps of a run that its timeline shows: one that is warmed up; of a
/// stream the first ones, until it is steady.
void chooseDrawn(const plan::Plan &plan, int64_t firstStep, int64_t lastStep,
                 Results &results);

/// Of steps of so many seconds the one in the middle, without the first, which
/// warms caches up; of a stream the mean.
double usualStep(const plan::Plan &plan, const std::vector<double> &seconds);

Summary summarize(const plan::Plan &plan, const Results &results);

/// What other programs had of the cores meanwhile (CoreUse.h).
double othersShare(const Results &results);

/// For the report.
report::MeasuredRun measured(const plan::Plan &plan, const Results &results);

/// What `pipec --profile` reads: the time of every stage's tasks, averaged over
/// microbatches, replicas and the usual steps (StepTotals.h), the median step,
/// and what others had of the cores. Failure(CannotWrite).
void writeProfile(const plan::Plan &plan, const Results &results,
                  const std::string &path);

/// A Chrome trace (Perfetto reads it): a process per rank, measured beside
/// predicted. Failure(CannotWrite).
void writeTrace(const plan::Plan &plan, const Results &results,
                const std::string &path);

} // namespace pipec
