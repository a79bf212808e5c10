#include "compiler/plan/command/PartitionCommand.h"

#include "compiler/plan/command/PartitionOutput.h"
#include "support/CommandLine.h"
#include "support/Diagnostics.h"
#include "support/Failure.h"
#include "support/OptionChecks.h"
#include "support/OutputFile.h"
#include "support/ReadFile.h"
#include "support/TerminalProgress.h"

#include <CLI/CLI.hpp>

#include <cmath>
#include <iostream>

namespace pipec {

namespace {

using published::GraphFormat;
using published::Objective;
using published::PartitionOptions;

struct Arguments {
  std::string graph, format, devices, bandwidth, memory,
      shape = "contiguous", objective, straddle = "off", output = "text", dot,
      strategy;
  int microbatches = 0;
  bool quiet = false;
};

[[noreturn]] void usage(const std::string &message) {
  throw Failure(Exit::Usage, message);
}

int parseCount(const std::string &text, const std::string &option) {
  constexpr int most = 1'000'000;
  bool digits = !text.empty() && text.size() <= 7 &&
                text.find_first_not_of("0123456789") == std::string::npos;
  int value = digits ? std::stoi(text) : 0;
  if (value < 1 || value > most)
    usage(option + ": '" + text + "' is not a whole number from 1 to " +
          std::to_string(most) +
          "; write M, NxM or AxBxC and so on, as 4, 2x8 or 2x2x4");
  return value;
}

double parsePositive(const std::string &text, const std::string &option) {
  size_t end = 0;
  double value = 0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception &) {
    end = 0;
  }
  if (end == 0 || end != text.size() || !std::isfinite(value) || value <= 0)
    usage(option + ": '" + text + "' is not a number above 0");
  return value;
}

/// Bytes, with an optional KiB/MiB/GiB/TiB or KB/MB/GB/TB. `example` is right.
double parseBytes(const std::string &text, const std::string &option,
                  const std::string &what, const std::string &example) {
  size_t unit = text.find_first_not_of("0123456789.eE+-");
  std::string suffix = unit == std::string::npos ? "" : text.substr(unit);
  std::string names;
  static const std::pair<const char *, double> units[] = {
      {"", 1},
      {"B", 1},
      {"KiB", 1024.0},
      {"MiB", 1048576.0},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GiB", 1073741824.0},
      {"GB", 1e9},
      {"TB", 1e12},
      {"TiB", 1099511627776.0}};
  for (auto [name, factor] : units) {
    if (suffix == name)
      return parsePositive(text.substr(0, unit), option) * factor;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  usage(option + ": '" + text + "' is not a number of " + what + ", such as " +
        example + "; units: " + names);
}

/// Bytes a second, as 12.5GB/s.
double parseBandwidth(std::string text) {
  const std::string typed = text;
  if (text.ends_with("/s"))
    text.resize(text.size() - 2);
  const std::string option = "--bandwidth " + typed;
  const double value =
      parseBytes(text, option, "bytes per second", "1.25e9 or 12.5GB/s");
  constexpr double least = 1e-6, most = 1e18;
  if (value < least || value > most)
    usage(option + ": links have from 1e-6 to 1e18 bytes per second");
  return value;
}

/// Of an empty text nothing; an end of it may be empty.
std::vector<std::string> split(const std::string &text, char mark) {
  std::vector<std::string> parts;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find(mark, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

PartitionOptions interpret(const Arguments &a) {
  PartitionOptions o;
  o.path = a.graph;
  if (!a.format.empty())
    o.format = a.format == "pipedream"   ? GraphFormat::PipeDream
               : a.format == "placement" ? GraphFormat::Placement
                                         : GraphFormat::Piper;
  if (!a.objective.empty())
    o.objective = a.objective == "pipedream"   ? Objective::PipeDream
                  : a.objective == "placement" ? Objective::Placement
                  : a.objective == "piper"     ? Objective::Piper
                                               : Objective::Step;
  int64_t devices = 1;
  for (const std::string &count : split(a.devices, 'x')) {
    o.devices.push_back(parseCount(count, "--devices"));
    devices *= o.devices.back();
    if (devices > 1'000'000)
      usage("--devices " + a.devices + ": more than a million; give fewer");
  }
  for (const std::string &bandwidth : split(a.bandwidth, ',')) {
    if (bandwidth.empty())
      usage("--bandwidth " + a.bandwidth +
            ": a value is missing; write one for all levels or one for each, "
            "as 12GB/s or 1.25GB/s,12GB/s");
    o.bandwidths.push_back(parseBandwidth(bandwidth));
  }
  if (!a.memory.empty())
    o.memoryLimit = parseBytes(a.memory, "--memory-limit", "bytes", "16GiB");
  o.microbatches = a.microbatches;
  o.contiguous = a.shape == "contiguous";
  o.straddle = a.straddle == "on";
  o.strategy = a.strategy;
  o.text = readFile(a.graph, "the graph");
  return o;
}

/// Links of 100 bytes per second are some of 100GB/s whose unit was left out;
/// nobody sends within a machine of a level that has one alone.
std::string noteOnUnits(const std::string &typed,
                        const PartitionOptions &options) {
  constexpr double kSlow = 1e4;
  const std::vector<std::string> texts = split(typed, ',');
  for (size_t l = 0; l < texts.size(); ++l) {
    const bool isAlone =
        options.devices.size() == texts.size() && options.devices[l] == 1;
    if (!isAlone && options.bandwidths[l] < kSlow &&
        texts[l].find_first_not_of("0123456789.") == std::string::npos)
      return "--bandwidth " + texts[l] + " is " + texts[l] +
             " bytes per second; did you mean " + texts[l] + "GB/s?";
  }
  return "";
}

/// Models begin with the version of their format, or say it in their name.
bool isModel(const PartitionOptions &options) {
  return options.path.ends_with(".onnx") ||
         (options.text.starts_with("\x08") &&
          options.text.find('\0') != std::string::npos);
}

/// A file that cannot be read may be of another format than it was taken for.
published::Partition partitionOf(const PartitionOptions &options) try {
  return published::partitionGraph(options);
} catch (const Failure &failure) {
  if (failure.code != Exit::BadModel)
    throw;
  if (isModel(options))
    throw Failure(failure.code,
                  options.path +
                      " is a model; pipec partition takes cost graphs "
                      "(PipeDream profiles, dnn-partitioning and Piper "
                      "graphs): 'pipec " +
                      options.path + " --dry-run' plans a model");
  if (options.format)
    throw;
  const GraphFormat guess = published::guessFormat(options.text, options.path);
  throw Failure(failure.code, failure.what() +
                                  std::string("; by its looks it was taken "
                                              "for a ") +
                                  published::formatName(guess) +
                                  " graph: --graph-format says what it is "
                                  "(pipedream, placement or piper)");
}

} // namespace

int partitionCommand(int argc, char **argv) {
  Arguments a;
  CLI::App app{"Cuts a cost graph into pipeline stages: PipeDream profiles, "
               "dnn-partitioning\n"
               "placement graphs, Piper instances.",
               "pipec partition"};
  app.add_option("graph", a.graph, "the cost graph")->required();
  app.add_option("--graph-format", a.format,
                 "guessed from the file when absent")
      ->check(oneOf({"pipedream", "placement", "piper"}));
  app.add_option(
      "--devices", a.devices,
      "NxM: N servers of M devices, or M; AxBxC and so on: any number of "
      "levels, outermost first; JSON graphs carry their own");
  app.add_option(
      "--bandwidth", a.bandwidth,
      "INTER,INTRA in bytes/s, as 1.25GB/s,12GB/s: between and inside "
      "servers; one for each level of --devices, or one for all");
  app.add_option("--memory-limit", a.memory,
                 "bytes of a device, such as 16GiB");
  app.add_option("--microbatches", a.microbatches, "in a batch or step")
      ->check(aCount(1 << 24));
  app.add_option("--shape", a.shape,
                 "contiguous: a device's nodes form a convex part; free: they "
                 "need not (placement)")
      ->check(oneOf({"contiguous", "free"}))
      ->capture_default_str();
  app.add_option(
         "--objective", a.objective,
         "the graph's published cost model, or step: our predicted step time")
      ->check(oneOf({"pipedream", "placement", "piper", "step"}));
  app.add_option("--straddle", a.straddle,
                 "let a stage's replicas straddle servers, and any other level "
                 "(pipedream); off is its own space")
      ->check(oneOf({"on", "off"}))
      ->capture_default_str();
  app.add_option(
      "--strategy", a.strategy,
      "the training strategy that --objective step prices; 1f1b when "
      "absent");
  app.add_option("--format", a.output, "text or json")
      ->check(oneOf({"text", "json"}))
      ->capture_default_str();
  app.add_option("--dot", a.dot,
                 "write the graph, colored by stage, for Graphviz");
  app.add_flag("--quiet", a.quiet,
               "print nothing but errors and --format json");
  if (const auto done = parseCommandLine(app, "pipec partition", argc, argv))
    return *done;
  const TerminalProgress progress(a.quiet);
  PartitionOptions options = interpret(a);
  expectOther("--dot", a.dot, a.graph);
  if (const std::string note = noteOnUnits(a.bandwidth, options);
      !note.empty() && !a.quiet)
    std::cerr << noteLine(note);
  published::Partition result = partitionOf(options);
  if (!a.dot.empty())
    writeFile(a.dot, partitionDot(result));
  if (a.output == "json")
    std::cout << partitionJson(result);
  else if (!a.quiet)
    std::cout << partitionText(result);
  return 0;
}

} // namespace pipec
