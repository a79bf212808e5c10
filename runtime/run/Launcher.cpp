//===- Launcher.cpp - from a command line to running ranks ----------------===//
#include "runtime/run/Launcher.h"
#include "runtime/control/Stop.h"
#include "runtime/run/Session.h"

#include <cstdio>
#include <thread>

namespace pipec {
namespace {

void complain(const std::string &message) {
  std::fprintf(stderr, "pipec-run: %s\n", message.c_str());
}

/// All ranks as threads of this process.
Exit runThreads(const plan::Plan &plan, const RunOptions &options,
                const TransportRow &row) {
  const auto count = static_cast<int>(plan.ranks.size());
  auto ends = row.open(count);
  Alarm alarm;
  alarm.beforeRaise = [&] {
    for (auto &end : ends)
      end->abandon();
  };
  std::vector<std::unique_ptr<Watch>> watches;
  for (int rank = 0; rank < count; ++rank)
    watches.push_back(std::make_unique<Watch>(rank, alarm));
  std::vector<std::thread> threads;
  std::vector<Exit> codes(count, Exit::Ok);
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        codes[rank] = Session(plan, options, *ends[rank], *watches[rank]).run();
      } catch (const Agreed &failure) {
        codes[rank] = failure.code;
        if (rank == 0)
          complain(failure.what());
      } catch (const Alarmed &failure) {
        codes[rank] = failure.code;
      } catch (const Failure &failure) {
        codes[rank] = failure.code;
        complain(RankState::nameOf(plan, rank) + ": " + failure.what());
        alarm.raise(failure.code, failure.what(), rank);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return codes[0];
}

} // namespace

int pipecRun(int argc, char **argv) {
  try {
    const std::optional<RunOptions> options = parseOptions(argc, argv);
    if (!options)
      return 0;
    catchSignals();
    const plan::Plan plan = plan::readPlan(options->plan);
    return static_cast<int>(
        runThreads(plan, *options, transportNamed("inproc")));
  } catch (const Failure &failure) {
    complain(failure.what());
    return static_cast<int>(failure.code);
  }
}

} // namespace pipec
