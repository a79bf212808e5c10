//===- Launcher.cpp - from a command line to running ranks ----------------===//
#include "runtime/run/Launcher.h"
#include "runtime/control/Stop.h"
#include "runtime/data/DataSource.h"
#include "runtime/exec/OutputLedger.h"
#include "runtime/program/Sequence.h"
#include "runtime/program/StageFiles.h"
#include "runtime/run/Overwrite.h"
#include "runtime/run/Ranks.h"
#include "runtime/run/Verify.h"
#include "support/Exhausted.h"
#include "support/StandardOutput.h"
#include "support/TerminalProgress.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/prctl.h>
#include <sys/sysinfo.h>

namespace pipec {
namespace {

/// The transport of a job that a launcher has started, if this process is part
/// of one.
const TransportRow *joinedTransport(const RunOptions &options) {
  for (const TransportRow &row : transports())
    if ((options.transport == "auto" || options.transport == row.name ||
         options.transport == kNccl) &&
        row.joined(options.transport == row.name))
      return &row;
  return nullptr;
}

/// What no rank could change.
void checkRunnable(const plan::Plan &plan) {
  if (plan::forwardOnly(plan))
    return;
  const bool loss =
      std::any_of(plan.stages.begin(), plan.stages.end(),
                  [](const plan::Stage &stage) { return stage.computes_loss; });
  if (!loss)
    throw Failure(Exit::Usage, "the plan computes no loss, there is nothing to "
                               "train; compile with --loss");
}

/// All ranks will be here: is there memory for them?
void checkMemory(const plan::Plan &plan) {
  struct sysinfo info{};
  if (sysinfo(&info) != 0)
    return;
  const int64_t there = static_cast<int64_t>(info.totalram) * info.mem_unit;
  int64_t needed = 0;
  for (const plan::Rank &rank : plan.ranks)
    needed += rank.peak_bytes;
  if (needed > there)
    throw Failure(Exit::NoFit,
                  "the ranks need " + std::to_string(needed) +
                      " bytes together, this machine has " +
                      std::to_string(there) +
                      "; start them on several machines (launch/), or compile "
                      "with fewer microbatches in flight or --recompute full");
}

/// A launcher has started several of this process, and no transport knows which
/// rank it is: each would run all ranks, into the same files.
void refuseToRunAlone(const RunOptions &options) {
  if (std::getenv(kControlVariable) || options.transport == "inproc")
    return;
  const std::string variables =
      "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT "
      "for each of them, as torchrun does, or ";
  const bool numbered = std::getenv("RANK");
  for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                           "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"})
    if (const int size = integerVariable(name).value_or(1);
        size > 1 && (numbered || std::strcmp(name, "WORLD_SIZE") != 0))
      throw Failure(Exit::Usage,
                    std::string(name) + "=" + std::to_string(size) +
                        ": a launcher has started " + std::to_string(size) +
                        " of this process, but --transport " +
                        options.transport +
                        " finds no rank in its environment; " +
                        (numbered ? "" : variables) +
                        (numbered || options.transport == "tcp"
                             ? "leave out --transport"
                             : "start them with mpirun or srun "
                               "--mpi=pmix (scripts are in "
                               "the plan's launch/)") +
                        "; each as a job of its own: --transport inproc");
}

/// One number alone is no job, other programs set them too; but it may have
/// been meant as one.
void noteHalfAJob(const plan::Plan &plan, const RunOptions &options) {
  const char *rank = std::getenv("RANK"), *size = std::getenv("WORLD_SIZE");
  const bool one = size && std::strcmp(size, "1") == 0;
  if (options.quiet || options.transport != "auto" || plan.ranks.size() == 1 ||
      !rank == !size || one)
    return;
  remark(std::string(rank ? "RANK=" : "WORLD_SIZE=") + (rank ? rank : size) +
         " means nothing without " + (rank ? "WORLD_SIZE" : "RANK") +
         ", MASTER_ADDR and MASTER_PORT: this process starts all " +
         std::to_string(plan.ranks.size()) + " ranks, here");
}

Exit start(const plan::Plan &plan, const RunOptions &options, char **argv) {
  checkRunnable(plan);
  if (options.oracle)
    return runOracle(plan, options);
  if (const TransportRow *row = joinedTransport(options))
    return runJoined(plan, options, *row);
  refuseToRunAlone(options);
  noteHalfAJob(plan, options);
  const bool gpus = plan.cluster.kind == "cuda";
  if (options.transport == kNccl && !gpus)
    throw Failure(Exit::Usage,
                  "--transport nccl connects GPUs, the plan is for "
                  "CPUs; leave it out");
  if (!gpus) // a GPU says itself whether a rank fits
    checkMemory(plan);
  const bool single = plan.ranks.size() == 1;
  const TransportRow &row =
      transportNamed(options.transport == kNccl    ? "mpi"
                     : options.transport != "auto" ? options.transport
                     : single || gpus              ? "inproc"
                                                   : "mpi");
  if (row.launch(1, {}).empty())
    return runThreads(plan, options, row);
  // What every rank would find wrong is said once.
  DataSource(plan, options.data, options.shuffle);
  return runLocalJob(plan, options, row, argv);
}

/// The plan to run, and whether the options go with it.
plan::Plan planToRun(RunOptions &options) {
  plan::Plan plan = plan::readPlan(options.plan);
  const bool trains = !plan::forwardOnly(plan);
  if (trains && options.evaluate) {
    plan = plan::readEvaluation(options.plan);
    options.trainingPlan = options.plan;
    options.plan += std::string("/") + plan::kEvaluationFolder;
  }
  readFiles(plan, options);
  if (!trains || options.evaluate) {
    checkPass(options);
    OutputLedger::checkNames(plan, options.outputs);
  } else {
    checkTraining(plan, options);
  }
  refuseToOverwrite(plan, options);
  return plan;
}

int parseAndRun(int argc, char **argv) {
  std::optional<RunOptions> options = parseOptions(argc, argv);
  if (!options)
    return endOfOutput(0);
  catchSignals();
  if (std::getenv(kControlVariable)) // no rank outlives its launcher
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  const TerminalProgress progress(options->quiet);
  const plan::Plan plan = planToRun(*options);
  const int code = endOfOutput(static_cast<int>(start(plan, *options, argv)));
  sayRemarks(static_cast<Exit>(code));
  return code;
}

} // namespace

int pipecRun(int argc, char **argv) {
  try {
    return whileItLasts([&] { return parseAndRun(argc, argv); });
  } catch (const Exhausted &failure) { // of one rank, not of all
    complain(failure);
    return static_cast<int>(failure.code);
  } catch (const Failure &failure) {
    complainOnce(failure);
    return static_cast<int>(failure.code);
  }
}

} // namespace pipec
