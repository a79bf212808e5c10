//===- Csv.h - PyTorch's compute-only schedule CSV --------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/Verifier.h"

#include <string>

namespace pipec::schedule {

/// One line per device, comma-separated `<stage><F|B|I|W><microbatch>`.
std::string writeCsv(const Schedule &schedule);

/// Reads the same; empty cells (PyTorch's idle slots) are skipped, and
/// "(0F4;7B3)OVERLAP_F_B" is a pair that runs together. Stages,
/// microbatches and placement are inferred: a stage found on several lines has
/// that many copies, copy c being the line that holds microbatch c. Throws
/// Failure(BadPlan) "name:line:column: …" on malformed text.
Schedule readCsv(const std::string &text, const std::string &name = "schedule");

/// verify() of what readCsv made of `text` under `schedule.name`. Throws
/// Failure(BadPlan) "name:line:column: rule: …" with the first violation; the
/// column is left out where no action is at fault, the line where no device is.
void verifyCsv(const Schedule &schedule, const std::string &text,
               const VerifyOptions &options = {});

} // namespace pipec::schedule
