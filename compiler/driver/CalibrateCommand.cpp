//===- CalibrateCommand.cpp - `pipec calibrate` ---------------------------===//
#include "compiler/driver/CalibrateCommand.h"

#include "compiler/driver/MeasureGenerated.h"
#include "compiler/driver/MeasureKernels.h"
#include "compiler/driver/MeasureMessages.h"
#include "compiler/driver/MeasurePasses.h"
#include "compiler/driver/MeasurePrograms.h"
#include "compiler/driver/Planning.h"
#include "report/Format.h"
#include "support/CommandLine.h"
#include "support/CoreUse.h"
#include "support/Cores.h"
#include "support/Failure.h"
#include "support/Median.h"
#include "support/OptionChecks.h"
#include "support/OutputFile.h"
#include "support/Phase.h"
#include "support/TerminalProgress.h"
#include "support/TrimmedMean.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <thread>

namespace pipec {
namespace {

const char *nameOf(plan::OpKind kind) {
  switch (kind) {
  case plan::OpKind::MatMul:
    return "product";
  case plan::OpKind::Convolution:
    return "convolution";
  case plan::OpKind::Attention:
    return "attention";
  case plan::OpKind::Elementwise:
    return "elementwise";
  case plan::OpKind::Reduction:
    return "reduction";
  case plan::OpKind::Copy:
    return "copy";
  }
  return "";
}

/// What was measured beside what the fitted model says.
std::string table(const plan::DeviceModel &device,
                  const std::vector<plan::CalibrationSample> &samples) {
  report::TextTable table(
      {"kernel", ">FLOP", ">bytes", ">measured", ">model", ">ratio"});
  for (const plan::CalibrationSample &s : samples) {
    double model = plan::opSeconds(device, s.flops, s.bytes, s.kind, s.dtype);
    const char *type = s.dtype == plan::DType::BF16 ? " bf16" : "";
    table.add({std::string(nameOf(s.kind)) + type,
               report::count(static_cast<int64_t>(s.flops)),
               report::bytes(static_cast<int64_t>(s.bytes)),
               report::seconds(s.seconds), report::seconds(model),
               report::ratio(model, s.seconds)});
  }
  return table.text();
}

/// How well the fitted costs explain the routines' timings.
std::string table(const plan::DeviceModel &device,
                  const std::vector<plan::KernelSample> &samples) {
  report::TextTable table({"routine", ">shapes", ">mean error", ">model/time"});
  for (const auto &[name, error] : plan::kernelErrors(device, samples))
    table.add({name, std::to_string(error.samples), report::percent(error.mean),
               report::ratio(error.total, 1)});
  return table.text();
}

/// How well the routines' costs explain whole tasks, before they are fitted to
/// them and then.
std::string sentence(const plan::KernelError &before,
                     const plan::KernelError &after) {
  return std::to_string(after.samples) + " whole tasks: mean error " +
         report::percent(before.mean) + " by their calls alone, " +
         report::percent(after.mean) + " with what they cost in tasks\n";
}

/// One rank for each core of this machine, unless the user says otherwise.
plan::Topology machine(const std::string &grid) {
  return untimedMachines(
      grid.empty()
          ? std::to_string(std::max(1u, std::thread::hardware_concurrency()))
          : grid);
}

/// Times that all is timed as if nobody shared the cores.
constexpr int kAloneRounds = 6;

/// The fastest: what a core does that nobody shares.
double least(std::vector<double> numbers) {
  return *std::min_element(numbers.begin(), numbers.end());
}

/// What calls and tasks take. Processors are not as fast at all times: all is
/// timed again and again: of calls the middle counts, of tasks the mean; of
/// cores that are to be taken as if `alone`, of more rounds the fastest.
class Rounds {
public:
  /// One thread's costs while as many run as the machine's ranks will have,
  /// with operands that are in a core's own cache and that are not; `ranks` of
  /// `threads` threads each.
  Rounds(int ranks, int threads, bool alone, int64_t own,
         const plan::DeviceModel &device) {
    constexpr int kNarrow = 16, kWide = 16, kKernels = 100;
    const int count = alone ? kAloneRounds : 3;
    const auto ofCalls = alone ? least : median,
               ofTasks = alone ? least : trimmedMean;
    const GeneratedKernels kernels(kKernels);
    const MeasuredPrograms programs(kNarrow, kWide);
    std::vector<std::vector<plan::KernelSample>> fars, nears, togethers;
    std::vector<std::vector<plan::TaskSample>> tasks, divided;
    std::vector<std::vector<plan::CachePass>> throughs;
    std::vector<double> turns;
    auto routines = [&](const Workers &workers, int share) {
      auto samples = measureRoutines(workers, share);
      for (plan::KernelSample &sample : kernels.measure(workers, share))
        samples.push_back(std::move(sample));
      return samples;
    };
    Phase rounds("round", count);
    for (int round = 0; round < count; ++round) {
      rounds.next();
      nears.push_back(routines({ranks * threads, 1, own / 4}, 1));
      tasks.push_back(programs.measure({ranks * threads, 1}, device));
      fars.push_back(routines({ranks * threads, 1, plan::kFarCaches * own}, 2));
      throughs.push_back(measurePasses(ranks * threads, own));
      turns.push_back(measureTurn());
      if (threads > 1) {
        togethers.push_back(routines({ranks, threads, own / 4}, 3));
        divided.push_back(programs.measure({ranks, threads}, device));
      }
    }
    if (!alone)
      unsteady = plan::unsteadyNote(nears);
    near = of(nears, ofCalls), far = of(fars, ofCalls);
    whole = of(tasks, ofTasks);
    passes = of(throughs, ofCalls);
    turn = ofCalls(std::move(turns));
    for (size_t i = 1; i < passes.size(); ++i)
      timeOf(passes[i]) = std::max(timeOf(passes[i]), timeOf(passes[i - 1]));
    if (threads > 1)
      together = of(togethers, ofCalls), wholeTogether = of(divided, ofTasks);
  }

  std::vector<plan::KernelSample> near, far, together;
  std::vector<plan::TaskSample> whole, wholeTogether;
  std::vector<plan::CachePass> passes;
  double turn = 0;      ///< between two tasks
  std::string unsteady; ///< what to say of rounds that differ

private:
  static double &timeOf(auto &sample) { return sample.seconds; }
  static double &timeOf(plan::CachePass &pass) { return pass.secondsPerByte; }
  template <typename Sample>
  static std::vector<Sample> of(std::vector<std::vector<Sample>> &rounds,
                                double (*of)(std::vector<double>)) {
    std::vector<Sample> result = std::move(rounds.front());
    for (size_t i = 0; i < result.size(); ++i) {
      std::vector<double> times{timeOf(result[i])};
      for (size_t r = 1; r < rounds.size(); ++r)
        times.push_back(timeOf(rounds[r][i]));
      timeOf(result[i]) = of(std::move(times));
    }
    return result;
  }
};

/// What messages between ranks of a server take, where they can be sent.
void timeMessages(plan::Topology &topology, int repeats) try {
  if (availableCores() < 2)
    throw Failure(Exit::Unavailable, "this process has one core alone");
  const MessageTimes times = measureMessages(topology.device.turnSeconds,
                                             topology.serverSize(), repeats);
  const plan::MessageCost cost =
      plan::fitMessages(times.gaps, topology.device.turnSeconds);
  topology.device.stepSeconds = times.stepEnd;
  topology.device.takeSeconds = cost.takeSeconds;
  topology.device.noteSeconds = times.note.takeSeconds;
  topology.device.seenSeconds = times.note.seenSeconds;
  topology.levels.back().bandwidth = cost.bandwidth;
} catch (const Failure &failure) {
  std::cerr << "pipec: note: messages between ranks are not timed, the file "
               "has a common machine's bandwidth and nothing for their fixed "
               "cost: "
            << failure.what() << "\n";
}

/// What ranks that outnumber the cores cost each other.
void timeCrowd(plan::Topology &topology, int repeats) try {
  constexpr int kMost = 64; // each is a stage to compile, and a process
  if (topology.serverSize() > kMost)
    throw Failure(Exit::Unavailable,
                  std::to_string(topology.serverSize()) +
                      " ranks are too many to start for this, more than " +
                      std::to_string(kMost));
  plan::Topology server = topology;
  server.levels = {topology.levels.back()};
  const plan::Crowd crowd =
      plan::fitCrowd(measureCrowd(topology.serverSize(), repeats), server);
  topology.device.crowdTurnSeconds = crowd.turnSeconds;
  topology.device.crowdSeenSeconds = crowd.seenSeconds;
} catch (const Failure &failure) {
  std::cerr << "pipec: note: ranks that share cores are not timed, the file "
               "has nothing for the turns they take: "
            << failure.what() << "\n";
}

/// Who times a machine that others use gets their share of it as its own.
void tellOfOthers(const CoreUse &begin) {
  if (const double share = shareOfOthers({coreUse() - begin});
      share >= kNoticedShare)
    std::cerr << "pipec: note: other programs had " << report::percent(share)
              << " of this machine's cores while it was timed: calibrate again "
                 "when it has nothing else to do\n";
}

} // namespace

int calibrateCommand(int argc, char **argv) {
  CLI::App app("Times this machine's CPU kernels; writes a cluster file with "
               "what they reach, for pipec MODEL.onnx --cluster.",
               "pipec calibrate");
  std::string grid, output, format = "text";
  bool alone = false, quiet = false;
  app.add_option("--cpus", grid,
                 "NxM: N servers like this one of M CPU ranks (default: one "
                 "server, a rank a core)");
  app.add_option("-o,--output", output, "the cluster file (default: stdout)");
  app.add_option("--format", format,
                 "text: with -o, also a table of what was measured; json: the "
                 "cluster file alone")
      ->check(oneOf({"text", "json"}));
  app.add_flag("--alone", alone,
               "as if nobody shared these cores: of six times that something "
               "is timed the fastest counts, not the middle of three");
  app.add_flag("--quiet", quiet, "no table");
  if (const auto done = parseCommandLine(app, "pipec calibrate", argc, argv))
    return *done;
  plan::Topology topology = machine(grid);
  if (!output.empty()) // refused before anything is measured
    expectWritable(output);
  const TerminalProgress progress(quiet);
  const Phase calibrating("calibrate");
  const int threads = topology.device.threads;
  const int ranks = std::min(topology.cores, topology.serverSize());
  const int64_t own = ownCacheBytes();
  const CoreUse begin = coreUse();
  auto samples = measureKernels({ranks, threads, plan::kFarCaches * own});
  topology.device = plan::fitDevice(topology.device, samples);
  topology.device.tile = productTile();
  topology.device.ownCacheBytes = static_cast<double>(own);
  const Rounds timed(ranks, threads, alone, own, topology.device);
  plan::DeviceModel away = topology.device;
  plan::fitKernels(away, timed.far, {});
  plan::fitKernels(topology.device, timed.near, timed.together);
  topology.device.farKernels = away.kernels;
  topology.device.passes = timed.passes;
  const std::vector<plan::TaskSample> &programs =
      threads > 1 ? timed.wholeTogether : timed.whole;
  const plan::KernelError before = plan::taskErrors(topology.device, programs);
  plan::fitTasks(topology.device, timed.whole);
  plan::fitThreads(topology.device, timed.wholeTogether);
  const plan::KernelError after = plan::taskErrors(topology.device, programs);
  topology.device.turnSeconds = timed.turn;
  topology.levels.back().latency = topology.device.ringSeconds = measureRing();
  const int repeats = alone ? kAloneRounds : 1;
  timeMessages(topology, repeats);
  if (topology.serverSize() > topology.cores)
    timeCrowd(topology, repeats);
  if (!alone)
    tellOfOthers(begin);
  if (!timed.unsteady.empty())
    std::cerr << "pipec: note: " << timed.unsteady << "\n";
  topology.device.name = "calibrated-cpu";
  topology.device.describe = "measured by pipec calibrate";
  const std::string text = plan::writeTopology(topology);
  if (output.empty()) {
    std::cout << text;
    return 0;
  }
  writeFile(output, text);
  if (!quiet && format == "text")
    std::cout << table(topology.device, samples) << "mean error of the model "
              << report::percent(
                     plan::calibrationError(topology.device, samples).mean)
              << "\n"
              << table(topology.device,
                       threads > 1 ? timed.together : timed.near)
              << sentence(before, after);
  return 0;
}

} // namespace pipec
