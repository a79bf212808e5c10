//===- RunTool.h - pipec-run as a process -----------------------*- C++ -*-===//
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <sys/types.h>
#include <vector>

namespace pipec::test {

struct Outcome {
  int code = -1; ///< exit code, or 128 + signal
  double seconds = 0;
  std::string output, errors;
  std::vector<double> losses; ///< of the metrics file
  std::vector<int64_t> steps; ///< of the metrics file
  nlohmann::json summary;     ///< null when there is none
};

/// A process that has been started.
class Process {
public:
  /// `environment`: NAME=VALUE, added.
  Process(const std::vector<std::string> &command, const std::string &folder,
          const std::vector<std::string> &environment = {});
  ~Process();
  Process(const Process &) = delete;
  pid_t pid() const { return child; }
  /// Kills it when it takes longer than `limit` seconds.
  Outcome wait(double limit = 120);
  /// True while it runs.
  bool running();
  /// Seconds since it was started.
  double age() const;

private:
  std::string folder;
  pid_t child;
  double started;
  int status = 0;
  bool finished = false;
};

/// pipec-run FOLDER --data … --metrics FOLDER/metrics.jsonl --quiet ARGUMENTS.
std::vector<std::string> toolCommand(const std::string &folder,
                                     const std::vector<std::string> &arguments);

/// The same, run to its end, with the metrics read.
Outcome runTool(const std::string &folder,
                const std::vector<std::string> &arguments,
                const std::vector<std::string> &environment = {});

/// Adds the losses and the summary of a metrics file.
void readMetrics(const std::string &path, Outcome &run);

std::string readText(const std::string &path);

/// Whether a file of the folder has its temporary name (OutputFile.h).
bool anyHalfWritten(const std::string &folder);

} // namespace pipec::test
