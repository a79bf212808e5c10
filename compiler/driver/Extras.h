//===- Extras.h - what a plan folder holds for people -----------*- C++ -*-===//
#pragma once

#include "compiler/plan/WhatIf.h"
#include "compiler/schedule/Schedule.h"
#include "runtime/program/Plan.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace pipec {

/// Writes schedule.csv, report.html and launch/ into a plan folder. Throws
/// Failure(CannotWrite).
void writeExtras(const plan::Plan &plan, const schedule::Schedule &schedule,
                 const std::string &folder);

/// The last rank on the device that holds most, and its bytes.
struct Fullest {
  int rank = 0;
  int64_t bytes = 0;
};
Fullest fullestDevice(const plan::Plan &plan);

/// The summary of a plan on stdout: text for a terminal, or `json`. `rows`,
/// when there are any, follow as a table of what else `own` could have been.
void printPlan(const plan::Plan &plan, bool json,
               const plan::Replanned *own = nullptr,
               const std::vector<plan::WhatIfRow> &rows = {});

/// Adds the rows as "what_if".
void addWhatIf(nlohmann::ordered_json &root,
               const std::vector<plan::WhatIfRow> &rows);

/// What to type next: where the plan is, how to look at it, how to run it.
void printNext(const plan::Plan &plan, const std::string &folder);

} // namespace pipec
