//===- Launcher.cpp - from a command line to running ranks ----------------===//
#include "runtime/run/Launcher.h"
#include "runtime/control/Stop.h"
#include "runtime/data/DataSource.h"
#include "runtime/run/Ranks.h"
#include "runtime/run/Verify.h"

#include <csignal>
#include <cstdlib>
#include <sys/prctl.h>

namespace pipec {
namespace {

/// The transport of a job that a launcher has started, if this process is part
/// of one.
const TransportRow *joinedTransport(const RunOptions &options) {
  for (const TransportRow &row : transports())
    if ((options.transport == "auto" || options.transport == row.name) &&
        row.joined())
      return &row;
  return nullptr;
}

Exit start(const plan::Plan &plan, const RunOptions &options, char **argv) {
  if (options.oracle)
    return runOracle(plan, options);
  if (const TransportRow *row = joinedTransport(options))
    return runJoined(plan, options, *row);
  const bool single = plan.ranks.size() == 1;
  const TransportRow &row =
      transportNamed(options.transport != "auto" ? options.transport
                     : single                    ? "inproc"
                                                 : "mpi");
  if (row.launch(1).empty())
    return runThreads(plan, options, row);
  // What every rank would find wrong is said once.
  DataSource(plan, options.data, options.shuffle);
  return runLocalJob(plan, options, row, argv);
}

} // namespace

int pipecRun(int argc, char **argv) {
  try {
    const std::optional<RunOptions> options = parseOptions(argc, argv);
    if (!options)
      return 0;
    catchSignals();
    if (std::getenv(kControlVariable)) // no rank outlives its launcher
      prctl(PR_SET_PDEATHSIG, SIGKILL);
    const plan::Plan plan = plan::readPlan(options->plan);
    return static_cast<int>(start(plan, *options, argv));
  } catch (const Failure &failure) {
    complain(failure.what());
    return static_cast<int>(failure.code);
  }
}

} // namespace pipec
