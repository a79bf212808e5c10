//===- CompileOptions.cpp - the command line of the compiler --------------===//
#include "compiler/driver/CompileOptions.h"

#include "compiler/driver/CompileFiles.h"
#include "compiler/plan/Topology.h"
#include "compiler/plan/WhatIf.h"
#include "compiler/plan/planners/Planners.h"
#include "compiler/strategy/Strategy.h"
#include "support/CommandLine.h"
#include "support/Failure.h"
#include "support/OptionChecks.h"
#include "support/UnknownName.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <unistd.h>

namespace pipec {

int64_t parseBytes(const std::string &text, const std::string &where) {
  static const std::map<std::string, double> units = {
      {"", 1},          {"B", 1},           {"K", 1 << 10}, {"KiB", 1 << 10},
      {"M", 1 << 20},   {"MiB", 1 << 20},   {"G", 1 << 30}, {"GiB", 1 << 30},
      {"T", 1LL << 40}, {"TiB", 1LL << 40}, {"kB", 1e3},    {"KB", 1e3},
      {"MB", 1e6},      {"GB", 1e9},        {"TB", 1e12}};
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception &) {
    used = 0;
  }
  auto unit = units.find(text.substr(used));
  constexpr double kMost = 1e18;
  if (used > 0 && unit != units.end() && value * unit->second > kMost)
    throw Failure(Exit::Usage,
                  where + "'" + text + "' is more than 1e18 bytes; give less");
  if (used == 0 || unit == units.end() || !(value * unit->second >= 1))
    throw Failure(Exit::Usage, where + "'" + text +
                                   "' is no amount of memory; write "
                                   "a number with a unit, as 16GiB: K, M, G "
                                   "or T, KiB, MiB ..., kB, MB ...");
  return static_cast<int64_t>(value * unit->second);
}

namespace {

/// Splits "name=value" at the first or the last '='; `what` names the option in
/// the error.
std::pair<std::string, std::string>
splitPair(const std::string &text, const std::string &what, bool last = false) {
  size_t at = last ? text.rfind('=') : text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw Failure(Exit::Usage, what + " takes NAME=VALUE, not '" + text + "'");
  return {text.substr(0, at), text.substr(at + 1)};
}

void readDims(const std::vector<std::string> &texts, CompileOptions &options) {
  for (const std::string &text : texts) {
    // A symbol may be an equation; a size never is.
    auto [name, value] = splitPair(text, "--dim", /*last=*/true);
    char *end = nullptr;
    errno = 0;
    long long size = std::strtoll(value.c_str(), &end, 10);
    if (*end || errno || size < 1 || size > (1LL << 40))
      throw Failure(Exit::Usage,
                    "--dim " + name + " takes a whole number from 1 to " +
                        std::to_string(1LL << 40) + ", not '" + value + "'");
    const auto [known, isNew] = options.dims.emplace(name, size);
    if (!isNew)
      throw Failure(Exit::Usage,
                    "--dim " + text + ": the dimension is given twice" +
                        (known->second == size
                             ? "; once is enough"
                             : ", before as " + std::to_string(known->second) +
                                   "; leave one of the two out"));
  }
}

/// The names in "label=labels,ignore_index=-100".
std::vector<std::string> settingNames(const std::string &defaults) {
  std::vector<std::string> names;
  std::stringstream parts(defaults);
  for (std::string part; std::getline(parts, part, ',');)
    names.push_back(part.substr(0, part.find('=')));
  return names;
}

/// "kind:key=value,key=value".
void readLoss(const std::string &text, CompileOptions &options) {
  size_t colon = text.find(':');
  options.loss = text.substr(0, colon);
  static const std::vector<std::pair<std::string, std::string>> kinds = {
#define LOSS(NAME, SETTINGS, SUMMARY) {NAME, SETTINGS},
#include "compiler/driver/Losses.def"
  };
  std::vector<std::string> known;
  for (const auto &kind : kinds)
    known.push_back(kind.first);
  const auto kind = std::find(known.begin(), known.end(), options.loss);
  if (kind == known.end())
    throw Failure(Exit::Usage, unknownName("loss", options.loss, known));
  if (colon == std::string::npos)
    return;
  const std::string &settings = kinds[kind - known.begin()].second;
  const std::vector<std::string> names = settingNames(settings);
  std::stringstream parts(text.substr(colon + 1));
  for (std::string part; std::getline(parts, part, ',');) {
    auto [key, value] = splitPair(part, "--loss " + options.loss);
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw Failure(Exit::Usage, "loss '" + options.loss +
                                     "' has no setting '" + key + "'" +
                                     didYouMean(key, names) + "; it has " +
                                     (settings.empty() ? "none" : settings));
    options.lossOptions[key] = value;
  }
}

std::string plannerNames() {
  std::string names;
  for (const plan::PlannerRow &row : plan::planners())
    names += std::string(names.empty() ? "" : ", ") + row.name;
  return names;
}

void checkGrid(const std::string &option, const std::string &grid) {
  if (grid.empty())
    return;
  int devices = 0;
  try {
    devices = plan::gridTopology(grid, {}).devices();
  } catch (const Failure &failure) {
    throw Failure(failure.code, option + ": " + failure.what());
  }
  if (devices > plan::kMostDevices)
    throw Failure(Exit::Usage, option + " " + grid + ": a plan has at most " +
                                   std::to_string(plan::kMostDevices) +
                                   " devices; give fewer");
}

/// Such plans are there to be looked at.
void checkTensorParallel(const CompileOptions &o) {
  if (o.tensorParallel == "1")
    return;
  const std::string option = "--tensor-parallel " + o.tensorParallel;
  const std::string &size = o.tensorParallel;
  if (size != "auto" &&
      (size.empty() || size[0] == '0' ||
       size.find_first_not_of("0123456789") != std::string::npos))
    throw Failure(Exit::Usage,
                  option + ": give a number of devices of at least 1, or auto");
  if (size != "auto" && size.size() > 4) // than kMostDevices, and than an int
    throw Failure(Exit::Usage, option + ": no server has so many devices; give "
                                        "a divisor of their number, or auto");
  if (o.planner != "alpa")
    throw Failure(Exit::Usage,
                  option + ": planner " + o.planner +
                      " divides no operators; add --planner alpa, or leave "
                      "--tensor-parallel out");
  if (!o.dryRun)
    throw Failure(Exit::Usage,
                  option + ": operators divided among devices are planned, "
                           "not compiled; add --dry-run, or leave "
                           "--tensor-parallel out");
}

/// Published systems name a strategy, a planner or both.
void checkNames(const CompileOptions &o) {
  const auto planners = plan::planners();
  const auto isPlanner = [&](const std::string &name) {
    return std::any_of(
        planners.begin(), planners.end(),
        [&](const plan::PlannerRow &row) { return row.name == name; });
  };
  if (isPlanner(o.strategy) && o.strategy != "auto" &&
      !strategy::findStrategy(o.strategy))
    throw Failure(
        Exit::Usage,
        "no strategy '" + o.strategy + "', but a planner: write --planner " +
            o.strategy +
            " beside a strategy that replicates stages, as --strategy 1f1b");
  if (!isPlanner(o.planner) && strategy::findStrategy(o.planner))
    throw Failure(Exit::Usage, "no planner '" + o.planner +
                                   "', but a strategy: --strategy " +
                                   o.planner);
  plan::planner(o.planner);
}

void check(const CompileOptions &o) {
  checkGrid("--cpus", o.cpus);
  checkGrid("--gpus", o.gpus);
  int targets = !o.gpus.empty() + !o.cpus.empty() + !o.clusterFile.empty();
  // A file that is not there is the first thing to know.
  if (targets != 1 && ::access(o.model.c_str(), F_OK) != 0)
    throw Failure(Exit::NoInput, o.model + ": the file cannot be read: " +
                                     std::strerror(errno) +
                                     "; check the path and its permissions");
  if (targets != 1)
    throw Failure(Exit::Usage,
                  std::string(targets == 0 ? "no devices are named"
                                           : "devices are named twice") +
                      "; say for which to compile, with exactly one of "
                      "--cpus NxM, --gpus NxM and --cluster FILE");
  if (!o.clusterFile.empty() && !o.device.empty())
    throw Failure(Exit::Usage, "--device and --cluster exclude each other: the "
                               "cluster file says which device it has");
  if (!o.targetGpu.empty() && o.emit != "cubin")
    throw Failure(Exit::Usage, "--target-gpu names the chip of --emit cubin; "
                               "all else is the same for every chip");
  if (o.dryRun && !o.emit.empty())
    throw Failure(Exit::Usage, "--dry-run generates nothing, --emit " + o.emit +
                                   " writes what is generated; leave out one "
                                   "of them");
  refuseToOverwrite(o, inputFiles(o));
  checkNames(o);
  if (o.planner != "auto" && !o.stageFile.empty())
    throw Failure(Exit::Usage, "--planner " + o.planner +
                                   " and --stage-file exclude each other: "
                                   "stages by hand leave nothing to plan");
  if (o.strategy == "file:")
    throw Failure(Exit::Usage,
                  "--strategy file: names no file; write file:S.csv");
  checkTensorParallel(o);
  if (!o.whatIf.empty())
    plan::whatIfAxes(o.whatIf);
}

/// What has no meaning without training.
void refuseTraining(const CLI::App &app) {
  for (const char *name : {"--loss", "--logits", "--optimizer", "--clip-norm",
                           "--strategy", "--slices", "--recompute",
                           "--tensor-parallel", "--freeze", "--train-only"})
    if (app.count(name) > 0)
      throw Failure(Exit::Usage,
                    std::string("--forward-only trains nothing: ") +
                        "leave out " + name);
}

/// Options as they are typed, before they are read.
struct Texts {
  std::vector<std::string> dims, constants;
  std::string loss = "cross-entropy", optimizer = "sgd", memoryLimit, tie;
};

/// The model, and what it is compiled for.
void addModel(CLI::App &app, CompileOptions &o, Texts &text) {
  app.add_option("MODEL.onnx", o.model, "the ONNX file")->required();
  app.add_option("--cpus", o.cpus, "NxM: N servers of M CPU ranks (M: 1xM)");
  app.add_option("--gpus", o.gpus, "NxM: N servers of M GPUs (M: 1xM)");
  app.add_option("--cluster", o.clusterFile, "cluster description (JSON)");
  app.add_option("--device", o.device,
                 "device model for --gpus: h100-sxm (default), ... (pipec list "
                 "devices)");
  takeMany(app.add_option("--dim", text.dims,
                          "NAME=VALUE: fixes a symbolic dimension; the batch "
                          "dimension is the microbatch size"));
  takeMany(app.add_option("--constant", text.constants,
                          "NAME=FILE.npy: a graph input that becomes a "
                          "constant"));
}

/// A step: its loss, its update, its numbers.
void addTraining(CLI::App &app, CompileOptions &o, Texts &text) {
  app.add_option("--microbatches", o.microbatches,
                 "microbatches in one optimizer step (default 1)")
      ->check(aCount(1000000));
  app.add_option("--loss", text.loss,
                 "KIND[:key=value,...]: cross-entropy (default), next-token, "
                 "mse, bce, output (pipec list losses)");
  app.add_option("--logits", o.logits, "model output that the loss takes");
  app.add_option("--optimizer", text.optimizer,
                 "KIND[:key=value,...]: sgd (default), adam, adamw (pipec list "
                 "optimizers)");
  app.add_option("--clip-norm", o.clipNorm, "global gradient norm limit")
      ->check(aboveZero());
  app.add_option("--precision", o.precision,
                 "fp32 or bf16: products and convolutions in bf16, weights, "
                 "sums, losses and updates in fp32")
      ->check(oneOf({"fp32", "bf16"}));
  app.add_option("--attention", o.attention,
                 "fused keeps no scores and computes them again for the "
                 "gradient; plain keeps them; auto: fused on GPUs")
      ->check(oneOf({"auto", "fused", "plain"}));
  app.add_option("--rounded-weights", o.roundedWeights,
                 "with --precision bf16: keep (default) a rounded copy of what "
                 "products read, 2 bytes a weight and version, written by the "
                 "update; again: round in every task, for less memory")
      ->check(oneOf({"keep", "again"}));
}

/// Which weights train.
void addWeights(CLI::App &app, CompileOptions &o, Texts &text) {
  takeMany(
      app.add_option("--freeze", o.freeze, "regular expression: do not train"));
  takeMany(app.add_option("--train-only", o.trainOnly,
                          "regular expression: train nothing else"));
  app.add_option("--tie", text.tie,
                 "auto: weights that are copies of others, transposed or not, "
                 "train as one with them; none (default)")
      ->check(oneOf({"auto", "none"}));
  app.add_flag("--untie", o.untie,
               "weights that the exporter merged because their values were "
               "equal train apart; the exported model has one for every "
               "place");
  app.add_option("--bn", o.batchNorm,
                 "batch norms: train, with the statistics of the microbatch "
                 "(the default when training), or inference, with their "
                 "running averages (with --forward-only)")
      ->check(oneOf({"train", "inference"}));
}

/// Strategy, stages and memory.
void addPlanning(CLI::App &app, CompileOptions &o, Texts &text) {
  app.add_option("--strategy", o.strategy,
                 "pipec list strategies; auto (default): the best synchronous "
                 "one; file:S.csv: an order by hand, a line per rank");
  app.add_option("--slices", o.slices,
                 "seq1f1b: pieces of a sequence (4 when left out); auto weighs "
                 "seq1f1b when it is given")
      ->check(aCount(1024));
  app.add_option("--stages", o.stages, "auto (default) or a number of stages");
  app.add_option("--replicas", o.replicas,
                 "replicas of each stage, as 3-1; default: the planner's");
  app.add_option("--stage-file", o.stageFile,
                 "stages by hand: a plan.json, or {\"stages\": "
                 "[{\"first_node\": …}, …]}");
  app.add_option("--recompute", o.recompute,
                 "auto (default), none, selective or full")
      ->check(oneOf({"auto", "none", "selective", "full"}));
  app.add_option("--planner", o.planner,
                 "how stages and replicas are chosen: " + plannerNames() +
                     " (pipec list planners)");
  app.add_option("--tensor-parallel", o.tensorParallel,
                 "with --planner alpa and --dry-run: devices among which a "
                 "stage divides its operators; auto: as many as are fastest");
  app.add_option("--profile", o.profile,
                 "times measured with pipec-run --profile-out, instead of the "
                 "device model's");
  app.add_option(
      "--what-if", o.whatIf,
      "plans again for more and less of these: devices, bandwidth, "
      "microbatches, memory; or by every other synchronous one of the "
      "strategies (comma-separated)");
  app.add_option("--memory-limit", text.memoryLimit,
                 "bytes per device, as 16GiB (default: what it has)");
}

/// What is made and printed.
void addResults(CLI::App &app, CompileOptions &o) {
  app.add_flag("--forward-only", o.forwardOnly,
               "no loss, no gradients: the pipeline runs inference");
  app.add_flag("--dry-run", o.dryRun, "plan and print, generate nothing");
  app.add_option("--emit", o.emit,
                 "nn, pipe, kernels, calls, llvm, ptx, cubin or object: stop "
                 "there, write to -o or stdout")
      ->check(oneOf({"nn", "pipe", "kernels", "calls", "llvm", "ptx", "cubin",
                     "object"}));
  app.add_flag("--self-contained", o.selfContained,
               "copy the weights into the plan");
  app.add_option("--dump-ir", o.dumpDirectory, "write the IR of every phase");
  app.add_option("--dot", o.dot,
                 "write the model's nodes as a Graphviz drawing, coloured by "
                 "stage");
  app.add_option("--target-cpu", o.targetCpu,
                 "CPU to generate code for (default: this machine's)");
  app.add_option("--target-gpu", o.targetGpu,
                 "chip of --emit cubin: sm_80 or sm_90 (default)")
      ->check(oneOf({"sm_80", "sm_90"}));
  app.add_option("-o,--output", o.output,
                 "plan directory (MODEL.plan), where a plan that is there is "
                 "replaced and other files stay, or the file of --emit; "
                 "missing folders on the way are made");
  app.add_option("--format", o.format, "text or json")
      ->check(oneOf({"text", "json"}));
  app.add_flag("--quiet", o.quiet,
               "no summary and no notes; --format json and --what-if print");
}

} // namespace

bool parseCompileOptions(int argc, char **argv, CompileOptions &o) {
  CLI::App app("pipec: compiles an ONNX model into a pipeline-parallel "
               "training program.\nOther commands: pipec schedule, partition, "
               "list, inspect, calibrate (each with --help).",
               "pipec");
  Texts text;
  addModel(app, o, text);
  addTraining(app, o, text);
  addWeights(app, o, text);
  addPlanning(app, o, text);
  addResults(app, o);
  if (parseCommandLine(app, "pipec", argc, argv))
    return false;
  o.microbatchesGiven = app.count("--microbatches") > 0;
  readDims(text.dims, o);
  for (const std::string &constant : text.constants)
    o.constants.push_back(splitPair(constant, "--constant"));
  readLoss(text.loss, o);
  size_t colon = text.optimizer.find(':');
  o.optimizer = text.optimizer.substr(0, colon);
  if (colon != std::string::npos)
    o.optimizerSettings = text.optimizer.substr(colon + 1);
  if (!text.memoryLimit.empty())
    o.memoryLimit = parseBytes(text.memoryLimit, "--memory-limit: ");
  o.limitHasUnit =
      text.memoryLimit.empty() ||
      text.memoryLimit.find_first_not_of("0123456789.") != std::string::npos;
  o.tie = text.tie == "auto";
  check(o);
  if (o.forwardOnly)
    refuseTraining(app);
  return true;
}

} // namespace pipec
