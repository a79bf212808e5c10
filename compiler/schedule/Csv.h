//===- Csv.h - PyTorch's compute-only schedule CSV --------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/Schedule.h"

#include <string>

namespace pipec::schedule {

/// One line per device, comma-separated `<stage><F|B|I|W><microbatch>`.
std::string writeCsv(const Schedule &schedule);

/// Reads the same; empty cells (PyTorch's idle slots) are skipped. Stages,
/// microbatches and placement are inferred: a stage found on several lines has
/// that many copies, copy c being the line that holds microbatch c. Throws
/// Failure(BadPlan) "name:line:column: …" on malformed text.
Schedule readCsv(const std::string &text, const std::string &name = "schedule");

} // namespace pipec::schedule
