//===- ScheduleOptions.h - command line of `pipec schedule` -----*- C++ -*-===//
#pragma once

#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Simulator.h"

#include <optional>
#include <string>

namespace pipec {

struct ScheduleOptions {
  std::string name;  ///< a row, "auto", or empty with --check
  std::string check; ///< a CSV file to verify instead
  std::string costs; ///< a file with the costs, empty: none
  schedule::ScheduleRequest request;
  std::string csv, html, perfetto; ///< files to write, empty: none
  schedule::SimulateOptions simulate;
  bool timeline = false, json = false, quiet = false;
};

/// Reads the command line; nothing when it asked for help or the version, which
/// is printed. Throws Failure.
std::optional<ScheduleOptions> parseScheduleOptions(int argc, char **argv);

/// The file of `--costs`: per-device lists. Throws Failure(NoInput or BadPlan)
/// naming the key.
void readScheduleCosts(const std::string &file,
                       schedule::ScheduleRequest &request);

} // namespace pipec
