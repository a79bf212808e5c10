//===- Session.cpp - one rank, from loading to the summary ----------------===//
#include "runtime/run/Session.h"
#include "runtime/control/Stop.h"
#include "runtime/program/Sequence.h"
#include "runtime/run/Export.h"
#include "runtime/run/LearningRate.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/Tensors.h"

#include <cstdio>
#include <numeric>
#include <sys/resource.h>
#include <unistd.h>

namespace pipec {

Session::Session(const plan::Plan &plan, const RunOptions &options,
                 Transport &transport, Watch &watch)
    : plan(plan), options(options), transport(transport), watch(watch),
      council(transport, watch), recorder(0) {}

Session::~Session() = default;

Exit Session::run() {
  load();
  if (plan.strategy.update == "round")
    trainStream();
  else
    trainSteps();
  if (!stopped)
    exportTrained();
  report();
  return stopped ? Exit::Stopped : Exit::Ok;
}

void Session::load() {
  council.agree("loading the plan", [&] {
    data = std::make_unique<DataSource>(plan, options.data, options.shuffle);
    for (int stage : plan.ranks[watch.rank].stages)
      for (const plan::StageInput &input : plan.stages[stage].inputs)
        data->checkValues(input.input);
    numbers.seed = options.seed;
    numbers.rate = learningRate(options.rate);
    state = std::make_unique<RankState>(plan, options.plan, watch.rank);
    loadInitial(*state, true);
    if (!options.resume.empty()) {
      const Checkpoint checkpoint(options.resume, plan, options.plan,
                                  {options.seed, options.shuffle});
      checkpoint.load(*state);
      firstStep = checkpoint.steps;
    }
    if (leads() && !options.exportFile.empty())
      checkExport(plan, options.plan, options.exportFile);
    if (leads())
      metrics = std::make_unique<Metrics>(options.metrics, firstStep);
  });
  stepsDone = firstStep;
  began = lastStep = now();
}

void Session::stepDone(int64_t step, double loss) {
  losses.push_back(loss);
  if (plan.strategy.update == "round") { // a step is a microbatch
    const double time = now();
    writeStep(step, time - lastStep);
    lastStep = time;
  }
}

void Session::writeStep(int64_t step, double time) {
  seconds.push_back(time);
  const double samples = static_cast<double>(plan.training.microbatches) *
                         plan.training.microbatch_size;
  metrics->step(step, losses.back(), time, time > 0 ? samples / time : 0);
  if (!options.quiet && ::isatty(STDERR_FILENO))
    std::fprintf(stderr, "\rstep %lld of %lld, loss %.6g ",
                 static_cast<long long>(step + 1),
                 static_cast<long long>(options.steps), losses.back());
}

/// Rank 0 decides for all.
bool Session::decideToStop() {
  int64_t stop = leads() && stopRequested();
  council.tell("waiting for rank 0 to go on", &stop, sizeof stop);
  return stop != 0;
}

void Session::trainSteps() {
  LossLedger ledger(plan, transport, watch, firstStep,
                    [&](int64_t step, double loss) { stepDone(step, loss); });
  TaskRunner runner(*state, watch, *data, recorder, numbers);
  StepExecutor executor({*state, transport, watch, ledger, runner, recorder});
  watch.idle = [&] { ledger.poll(); };
  while (stepsDone < options.steps && !stopped) {
    executor.tasks(stepsDone);
    executor.update(stepsDone);
    ledger.waitFor(stepsDone + 1);
    ++stepsDone;
    stopped = decideToStop();
    if (leads()) {
      const double time = now();
      writeStep(stepsDone - 1, time - lastStep);
      lastStep = time;
    }
    const int64_t every = options.checkpointEvery;
    checkpoint((every && stepsDone % every == 0) || stopped ||
               stepsDone == options.steps);
  }
  watch.idle = nullptr;
  ledger.close();
}

void Session::trainStream() {
  LossLedger ledger(plan, transport, watch, firstStep,
                    [&](int64_t step, double loss) { stepDone(step, loss); });
  TaskRunner runner(*state, watch, *data, recorder, numbers);
  StreamExecutor executor({*state, transport, watch, ledger, runner, recorder});
  const int64_t round = plan::roundLength(plan);
  const int64_t every = options.checkpointEvery;
  while (stepsDone < options.steps && !stopped) {
    int64_t end = options.steps;
    if (every) { // the next checkpoint, after whole rounds
      const int64_t next = (stepsDone / every + 1) * every;
      end = std::min(end, (next + round - 1) / round * round);
    }
    stepsDone = executor.run(stepsDone, end, stopRequested);
    watch.idle = [&] { ledger.poll(); };
    ledger.waitFor(stepsDone);
    stopped = decideToStop();
    if (stepsDone % round == 0)
      checkpoint(true);
    else if (leads() && !options.checkpoint.empty())
      std::fprintf(stderr,
                   "pipec-run: no checkpoint after step %lld: the stages' "
                   "rounds end together every %lld steps\n",
                   static_cast<long long>(stepsDone),
                   static_cast<long long>(round));
  }
  watch.idle = nullptr;
  ledger.close();
}

void Session::checkpoint(bool due) {
  if (!due || options.checkpoint.empty() || saved == stepsDone)
    return;
  saveCheckpoint(*state, council, options.checkpoint, stepsDone,
                 {options.seed, options.shuffle});
  saved = stepsDone;
}

void Session::exportTrained() {
  if (options.exportFile.empty())
    return;
  council.agree("exporting the model", [&] {
    TensorExchange exchange(*state, transport, watch, stepsDone);
    if (!leads())
      return exchange.serve();
    // The others serve until told otherwise, also when writing fails.
    try {
      exportModel(plan, options.plan, options.exportFile, exchange);
    } catch (const Alarmed &) {
      throw;
    } catch (const Failure &) {
      exchange.finish();
      throw;
    }
    exchange.finish();
  });
}

void Session::report() {
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  RankFigures mine;
  mine.peak_bytes = state->arena.peak();
  mine.predicted_peak_bytes = plan.ranks[watch.rank].peak_bytes;
  mine.rss_bytes = int64_t(usage.ru_maxrss) * 1024;
  mine.busy_s = recorder.busy;
  Summary summary;
  council.gather(
      "gathering figures",
      std::string(reinterpret_cast<const char *>(&mine), sizeof mine),
      [&](int, const std::string &message) {
        RankFigures figures;
        message.copy(reinterpret_cast<char *>(&figures), sizeof figures);
        summary.ranks.push_back(figures);
      });
  if (!leads())
    return;
  summary.steps = static_cast<int64_t>(losses.size());
  summary.final_loss = losses.empty() ? 0 : losses.back();
  summary.predicted_step_s = plan.predicted.step_s;
  // The first step also warms caches up.
  const size_t skip = seconds.size() > 1 ? 1 : 0;
  summary.step_s =
      std::accumulate(seconds.begin() + static_cast<std::ptrdiff_t>(skip),
                      seconds.end(), 0.0) /
      static_cast<double>(std::max<size_t>(1, seconds.size() - skip));
  if (summary.step_s > 0)
    summary.samples_per_s = plan.training.microbatches *
                            plan.training.microbatch_size / summary.step_s;
  metrics->summary(summary);
  if (!options.quiet && ::isatty(STDERR_FILENO))
    std::fprintf(stderr, "\n");
  if (!options.quiet || options.json)
    std::fputs(
        (options.json ? toJson(summary) + "\n" : toText(summary)).c_str(),
        stdout);
  std::fflush(stdout);
}

} // namespace pipec
