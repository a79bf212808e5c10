//===- Options.h - the command line of pipec-run ----------------*- C++ -*-===//
#pragma once

#include "runtime/program/Plan.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pipec {

/// Of --transport: processes whose GPUs are connected by NCCL, whatever
/// connects the processes.
constexpr const char *kNccl = "nccl";

struct RunOptions {
  std::string plan; ///< the plan folder
  /// NAME=FILE.npy as they are typed: where a name ends, its plan knows.
  std::vector<std::string> dataGiven, outputsGiven;
  std::map<std::string, std::string> data;    ///< graph input -> .npy file
  std::map<std::string, std::string> outputs; ///< model output -> .npy file
  bool evaluate = false;
  std::string trainingPlan; ///< with `evaluate`: the plan that trains; `plan`
                            ///< is then the one inside it
  int64_t steps = 0;
  std::optional<uint64_t> shuffle;
  uint64_t seed = 0;
  std::string metrics, trace, profileOut;
  std::string checkpoint, resume;
  int64_t checkpointEvery = 0; ///< 0: at the end only
  std::string exportFile;
  bool oracle = false, verify = false;
  std::string rate = "constant";
  double timeout = 60; ///< seconds
  std::string transport = "auto";
  bool graphs = true; ///< a GPU's steps are recorded once and replayed
  int threads = 0;    ///< 0: the cores, divided by the ranks of the machine
  bool quiet = false;
  bool json = false; ///< --format json
};

/// The options, or nothing when --help or --version has been answered.
/// Failure(Usage).
std::optional<RunOptions> parseOptions(int argc, char **argv);

/// Reads the files of --data and --output for the names of the plan, which may
/// have a '=' themselves: the longest that fits is meant. Failure(Usage).
void readFiles(const plan::Plan &plan, RunOptions &options);

/// Do the options go with a plan that trains, or with one that does not?
/// Failure(Usage).
void checkTraining(const plan::Plan &plan, const RunOptions &options);
void checkPass(const RunOptions &options);

} // namespace pipec
