//===- Options.cpp - the command line of pipec-run ------------------------===//
#include "runtime/run/Options.h"
#include "runtime/data/DataSource.h"
#include "runtime/run/LearningRate.h"
#include "runtime/transport/Transport.h"
#include "support/CommandLine.h"
#include "support/Failure.h"
#include "support/OptionChecks.h"

#include <CLI/CLI.hpp>
#include <set>

namespace pipec {
namespace {

void checkForm(const std::string &option,
               const std::vector<std::string> &arguments) {
  for (const std::string &argument : arguments)
    if (const size_t equals = argument.find('='); equals == std::string::npos ||
                                                  equals == 0 ||
                                                  equals + 1 == argument.size())
      throw Failure(Exit::Usage,
                    option + " " + argument + ": not NAME=FILE.npy");
}

/// Where the name of NAME=FILE.npy ends: of the longest known one, or before
/// the first '='.
size_t endOfName(const std::string &argument,
                 const std::vector<std::string> &known) {
  size_t end = 0;
  for (const std::string &name : known)
    if (name.size() > end && name.size() + 1 < argument.size() &&
        argument.starts_with(name + "="))
      end = name.size();
  return end ? end : argument.find('=');
}

/// NAME=FILE.npy, each name once. `what`: "input".
std::map<std::string, std::string>
parseFiles(const std::string &option, const std::string &what,
           const std::vector<std::string> &arguments,
           const std::vector<std::string> &known) {
  std::map<std::string, std::string> files;
  for (const std::string &argument : arguments) {
    const size_t end = endOfName(argument, known);
    if (!files.emplace(argument.substr(0, end), argument.substr(end + 1))
             .second)
      throw Failure(Exit::Usage, option + " " + argument + ": the " + what +
                                     " is given twice");
  }
  return files;
}

void check(const RunOptions &options) {
  auto usage = [](const std::string &message) {
    throw Failure(Exit::Usage, message);
  };
  if (options.checkpointEvery > 0 && options.checkpoint.empty())
    usage("--checkpoint-every needs --checkpoint DIR");
  if (options.oracle && options.verify)
    usage("--oracle and --verify exclude each other");
  if (options.oracle && (!options.checkpoint.empty() ||
                         !options.trace.empty() || !options.profileOut.empty()))
    usage("--oracle writes neither checkpoints nor traces nor profiles");
  if (options.verify && !options.resume.empty())
    usage("--verify compares from the first step on, it takes no --resume");
  if (options.oracle && !options.resume.empty())
    usage("--oracle starts from the first step, it takes no --resume");
  learningRate(options.rate);
}

std::string transportHelp() {
  std::string text = "auto";
  for (const TransportRow &row : transports())
    text += ", " + row.name + " (" + row.summary + ")";
  return text + ", nccl (tensors of GPUs by NCCL, between processes started by "
                "mpirun or another launcher)";
}

std::vector<std::string> transportNames() {
  std::vector<std::string> names = {"auto"};
  for (const TransportRow &row : transports())
    names.push_back(row.name);
  names.push_back(kNccl);
  return names;
}

/// Options as they are typed, before they are read.
struct Texts {
  std::string format = "text", graphs = "on";
};

/// The plan and the arrays it reads and writes.
void addArrays(CLI::App &app, RunOptions &options) {
  app.add_option("PLAN", options.plan, "the plan folder")->required();
  takeMany(app.add_option("--data", options.dataGiven,
                          "one array per graph input, labels included; axis 0 "
                          "counts samples; int32 will do for int64")
               ->type_name("NAME=FILE.npy"));
  takeMany(app.add_option("--output", options.outputsGiven,
                          "write a model output for every sample: of a plan "
                          "compiled with --forward-only, or with --evaluate")
               ->type_name("NAME=FILE.npy"));
  app.add_flag("--evaluate", options.evaluate,
               "one pass over the data without updates: loss and outputs");
}

/// What is trained, and how.
void addTraining(CLI::App &app, RunOptions &options) {
  app.add_option("--steps", options.steps, "optimizer steps")->check(aCount());
  app.add_option("--shuffle", options.shuffle,
                 "permute the samples in each epoch")
      ->type_name("SEED")
      ->check(aSeed());
  app.add_option("--seed", options.seed, "of random numbers in the model")
      ->check(aSeed());
  app.add_flag("--oracle", options.oracle,
               "the same training in one process without a pipeline");
  app.add_flag("--verify", options.verify,
               "run both and compare losses and weights");
  app.add_option("--lr-schedule", options.rate,
                 "factor on the learning rate: " + learningRateNames() +
                     ", with :warmup=STEPS,total=STEPS,min=FACTOR")
      ->type_name("KIND");
}

/// What a run writes.
void addFiles(CLI::App &app, RunOptions &options, Texts &text) {
  app.add_option("--metrics", options.metrics, "JSON lines, one per step")
      ->type_name("FILE");
  app.add_option("--trace", options.trace,
                 "a Perfetto trace of every rank, predicted beside measured")
      ->type_name("FILE");
  app.add_option("--profile-out", options.profileOut,
                 "measured times of every stage, for pipec --profile")
      ->type_name("FILE");
  app.add_option("--checkpoint", options.checkpoint,
                 "where checkpoints are written; the newest alone is kept")
      ->type_name("DIR");
  app.add_option("--checkpoint-every", options.checkpointEvery,
                 "steps between checkpoints (default: one at the end)")
      ->type_name("K")
      ->check(aCount());
  app.add_option("--resume", options.resume,
                 "go on from the checkpoint in DIR; --steps counts from the "
                 "very first")
      ->type_name("DIR");
  app.add_option("--export", options.exportFile,
                 "the compiled model with the trained weights")
      ->type_name("FILE.onnx");
  app.add_flag("--quiet", options.quiet,
               "the result and errors only: no table, notes or progress");
  app.add_option("--format", text.format, "of the summary on stdout")
      ->type_name("text|json")
      ->check(oneOf({"text", "json"}))
      ->capture_default_str();
}

/// How ranks run and meet.
void addRanks(CLI::App &app, RunOptions &options, Texts &text) {
  app.add_option("--timeout", options.timeout,
                 "seconds within which the job ends when a peer does not "
                 "answer: after half of them it is lost")
      ->type_name("SECONDS")
      ->check(aboveZero())
      ->capture_default_str();
  app.add_option("--transport", options.transport, transportHelp())
      ->type_name("NAME")
      ->check(oneOf(transportNames()))
      ->capture_default_str();
  app.add_option("--graphs", text.graphs,
                 "on GPUs: record a step once and replay it (on), or queue it "
                 "anew every time (off)")
      ->type_name("on|off")
      ->check(oneOf({"on", "off"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "threads of each rank (default: OMP_NUM_THREADS, or the "
                 "cores divided by the ranks of a machine)")
      ->check(aCount(1 << 16));
}

} // namespace

std::optional<RunOptions> parseOptions(int argc, char **argv) {
  RunOptions options;
  Texts text;
  CLI::App app("Runs a plan that pipec has compiled: one process per rank. "
               "Missing folders of\nfiles that it writes are made.",
               "pipec-run");
  addArrays(app, options);
  addTraining(app, options);
  addFiles(app, options, text);
  addRanks(app, options, text);
  if (parseCommandLine(app, "pipec-run", argc, argv))
    return std::nullopt;
  options.json = text.format == "json";
  options.graphs = text.graphs == "on";
  checkForm("--data", options.dataGiven);
  checkForm("--output", options.outputsGiven);
  check(options);
  return options;
}

void readFiles(const plan::Plan &plan, RunOptions &options) {
  std::vector<std::string> inputs, outputs;
  for (const plan::Input &input : plan.inputs)
    inputs.push_back(input.name);
  for (const plan::Output &output : plan.outputs)
    outputs.push_back(output.name);
  options.data = parseFiles("--data", "input", options.dataGiven, inputs);
  options.outputs =
      parseFiles("--output", "output", options.outputsGiven, outputs);
  // Two outputs in one file would leave the last one.
  std::set<std::string> seen;
  for (auto &[name, file] : options.outputs)
    if (!seen.insert(file).second)
      throw Failure(Exit::Usage, "--output " + name + "=" + file +
                                     ": another output has this file");
}

void checkTraining(const plan::Plan &plan, const RunOptions &options) {
  if (options.steps < 1) {
    const std::string missing = missingData(plan, options.data);
    throw Failure(Exit::Usage,
                  "say how long to train, with --steps N" +
                      (missing.empty() ? "" : ", and on what:" + missing));
  }
  if (!options.outputs.empty())
    throw Failure(Exit::Usage,
                  "--output needs --evaluate, or a plan compiled with "
                  "--forward-only");
}

void checkPass(const RunOptions &options) {
  const std::pair<bool, const char *> unfit[] = {
      {options.steps > 0, "--steps"},
      {options.shuffle.has_value(), "--shuffle"},
      {!options.checkpoint.empty(), "--checkpoint"},
      {!options.resume.empty() && !options.evaluate, "--resume"},
      {!options.exportFile.empty(), "--export"},
      {options.oracle, "--oracle"},
      {options.verify, "--verify"},
      {options.rate != "constant", "--lr-schedule"}};
  for (auto [given, name] : unfit)
    if (given)
      throw Failure(Exit::Usage,
                    std::string("one pass over the data, in its order, trains "
                                "nothing: leave out ") +
                        name);
}

} // namespace pipec
