//===- Session.cpp - one rank, from loading to the summary ----------------===//
#include "runtime/run/Session.h"
#include "report/Format.h"
#include "report/Report.h"
#include "runtime/control/Stop.h"
#include "runtime/program/Sequence.h"
#include "runtime/run/Export.h"
#include "runtime/run/LearningRate.h"
#include "runtime/run/Ranks.h"
#include "runtime/run/SameRun.h"
#include "runtime/run/StepPhases.h"
#include "runtime/run/Verify.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/RoundedWeights.h"
#include "runtime/state/Tensors.h"
#include "support/Exhausted.h"
#include "support/OutputFile.h"
#include "support/ShellWord.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <ranges>
#include <sys/resource.h>

namespace pipec {
namespace {

/// Events kept for the report's timeline, and for a trace.
constexpr size_t kDrawnEvents = 1 << 14, kTracedEvents = 1 << 19;

/// "100 steps, final loss 2.5369", "1000 samples, loss 2.5369".
std::string headline(const Summary &summary) {
  char loss[64] = "";
  if (summary.hasLoss)
    std::snprintf(loss, sizeof loss, ", %sloss %.6g",
                  summary.samples ? "" : "final ", summary.final_loss);
  return (summary.samples ? report::plural(summary.samples, "sample")
                          : report::plural(summary.steps, "step")) +
         loss;
}

} // namespace

Session::Session(const plan::Plan &plan, const RunOptions &options,
                 Transport &transport, Watch &watch, Links *links)
    : plan(plan), options(options), transport(transport), watch(watch),
      links(links), council(transport, watch) {}

Session::~Session() = default;

Exit Session::run() {
  try {
    return whileItLasts([&] { return work(); });
  } catch (const Agreed &) { // all ranks are between transfers
    dropOutputs();
    throw;
  } catch (...) { // before the memory goes that others may still read
    transport.abandon();
    dropOutputs();
    throw;
  }
}

/// What one rank says for all where another is lost: the last checkpoint, of
/// this training or that it goes on from.
void Session::rememberCheckpoint(const std::string &folder, int64_t steps) {
  if (leads() && state->trains && steps > 0)
    watch.remember("; go on with --resume " + shellWord(folder) +
                   ", which has " + report::plural(steps, "step"));
}

/// Who fails leaves the process without an end of this object.
void Session::dropOutputs() {
  if (outputs)
    outputs->drop();
}

Exit Session::work() {
  load();
  if (!state->trains)
    evaluate();
  else if (plan.strategy.update == "round")
    trainStream();
  else
    trainSteps();
  if (!stopped && !options.exportFile.empty())
    withTensors("exporting the model", [&](const Fetch &fetch) {
      exportModel(plan, options.plan, options.exportFile, fetch);
    });
  if (!stopped && options.verify)
    withTensors("verifying", [&](const Fetch &fetch) {
      verify(plan, options, *data, numbers, results.losses, fetch);
    });
  if (stopped && !state->trains)
    throw Agreed(Exit::Stopped, "stopped on request; no output was written");
  report();
  return stopped ? Exit::Stopped : Exit::Ok;
}

void Session::load() {
  // Before any rank opens a GPU, where it waits for the others.
  council.agree("reading the data", [&] {
    if (leads() && !options.checkpoint.empty())
      refuseToReplace(options.checkpoint, options.resume);
    data = std::make_unique<DataSource>(plan, options.data, options.shuffle);
    for (int stage : plan.ranks[watch.rank].stages)
      for (const plan::StageInput &input : plan.stages[stage].inputs)
        data->checkValues(input.input);
    noteFewSamples();
    if (const std::string text = leads() ? data->countsFromEnd() : "";
        !text.empty())
      note(text);
    numbers.seed = options.seed;
    numbers.rate = learningRate(options.rate);
    noteIdleSteps();
  });
  expectSameRun(council, plan, factsOf(options, data->marks()));
  council.agree("loading the plan", [&] {
    state = std::make_unique<RankState>(
        plan, options.plan, watch.rank,
        openDevice({plan, watch.rank, links, &watch,
                    options.graphs && plan::repeats(plan)}));
    if (const std::string why = state->device->facts().whyPtx; !why.empty())
      remark(watch.name + ": " + why);
    loadInitial(*state, true);
    if (!options.resume.empty())
      loadCheckpoint();
    roundWeights(*state, firstStep);
    if (!state->trains) {
      pass = passOver(plan, data->samples());
      sampleLosses = std::make_unique<SampleLosses>(plan, *data);
      outputs = std::make_unique<OutputLedger>(
          plan, transport, watch, options.outputs, pass, *sampleLosses);
    }
  });
  if (!options.resume.empty())
    expectSameRun(council, plan, {{"the checkpoint", resumed}});
  council.agree("opening the results", [&] {
    noteUnwritten();
    if (!leads())
      return;
    expectOutputs();
    metrics = std::make_unique<Metrics>(options.metrics, firstStep);
  });
  stepsDone = firstStep;
  const int64_t count = plan.training.microbatches;
  lastStep =
      state->trains ? options.steps : (pass.microbatches + count - 1) / count;
  chooseDrawn(plan, firstStep, lastStep, results);
  if (options.trace.empty())
    recorder.keep(results.drawnStep, results.drawnStep + results.drawnSteps,
                  kDrawnEvents);
  else
    recorder.keep(firstStep, lastStep, kTracedEvents);
  const bool stream = plan.strategy.update == "round";
  const auto warm = stream ? static_cast<int64_t>(plan.stages.size()) : 1;
  recorder.countFrom(std::min(firstStep + warm, lastStep - 1));
  compareClocks();
  loaded = coreUse();
  lastTime = now();
}

/// What is written at the end: that it cannot be must not cost the training.
void Session::expectOutputs() const {
  if (!options.checkpoint.empty())
    expectCheckpoints(options.checkpoint);
  if (!options.exportFile.empty())
    checkExport(plan, options.plan, options.exportFile);
  for (const std::string *path : {&options.trace, &options.profileOut})
    if (!path->empty())
      expectWritable(*path);
}

void Session::note(const std::string &text) const {
  if (leads() && !options.quiet)
    remark(text);
}

void Session::noteFewSamples() const {
  const int64_t samples = data->samples(),
                step = int64_t(plan.training.microbatches) *
                       plan.training.microbatch_size;
  if (!plan::forwardOnly(plan) && samples > 0 && samples < step)
    note("a step takes " + std::to_string(step) + " samples (" +
         std::to_string(plan.training.microbatches) + " microbatches of " +
         std::to_string(plan.training.microbatch_size) + "), the data has " +
         std::to_string(samples) +
         ": each step takes some of them more than once");
}

/// A rate that has come to its end before the run has.
void Session::noteIdleSteps() const {
  if (plan::forwardOnly(plan))
    return;
  const auto steps = std::views::iota(int64_t{0}, options.steps);
  const auto idle = std::ranges::partition_point(
      steps, [this](int64_t step) { return numbers.rate(step) != 0; });
  if (idle != steps.end())
    note("--lr-schedule " + options.rate +
         ": the learning rate is 0 from step " + std::to_string(*idle + 1) +
         " of " + std::to_string(options.steps) +
         " on; total=" + std::to_string(options.steps) +
         " ends with the run, min= keeps a share of the rate");
}

/// What a plan without a loss computes is its outputs alone.
void Session::noteUnwritten() const {
  if (!plan::forwardOnly(plan) || options.evaluate || !options.outputs.empty())
    return;
  std::string flags;
  for (const plan::Output &output : plan.outputs)
    flags += " --output " + shellWord(output.name + "=FILE.npy");
  note("no output is written: add" + flags);
}

/// A pass over the data takes the trained tensors alone, of the plan that made
/// them.
void Session::loadCheckpoint() {
  if (!state->trains) {
    const plan::Plan training = plan::readPlan(options.trainingPlan);
    for (const plan::Weight &weight : training.weights)
      if (!weight.split.of.empty() || !weight.copies.empty())
        throw Failure(
            Exit::Usage,
            "what was trained with --tie or --untie is evaluated from "
            "its --export FILE.onnx, compiled with --forward-only");
    const Checkpoint checkpoint(options.resume, training, options.trainingPlan,
                                std::nullopt);
    checkpoint.loadTrained(*state, training);
    resumed = checkpoint.mark();
    return;
  }
  const Checkpoint checkpoint(options.resume, plan, options.plan,
                              RunIdentity{options.seed, options.shuffle});
  if (checkpoint.steps > options.steps)
    throw Failure(Exit::Usage, "--resume " + options.resume +
                                   ": the checkpoint is of step " +
                                   std::to_string(checkpoint.steps) +
                                   ", past --steps " +
                                   std::to_string(options.steps) +
                                   "; steps count from the very first: give "
                                   "more than " +
                                   std::to_string(checkpoint.steps));
  if (!checkpoint.precision.empty() &&
      checkpoint.precision != plan.training.precision)
    note("the checkpoint was trained with --precision " + checkpoint.precision +
         ", the plan goes on with " + plan.training.precision);
  noteOtherData(checkpoint);
  noteOtherSettings(checkpoint);
  checkpoint.load(*state);
  firstStep = checkpoint.steps;
  resumed = checkpoint.mark();
  rememberCheckpoint(options.resume, firstStep);
}

/// Other data may be meant: a next part, say. It may be a mistake as well.
void Session::noteOtherData(const Checkpoint &checkpoint) const {
  const std::map<std::string, std::string> marks = data->marks();
  std::string others;
  for (const auto &[input, mark] : checkpoint.data)
    if (const auto mine = marks.find(input);
        mine != marks.end() && mine->second != mark)
      others += (others.empty() ? "'" : ", '") + input + "'";
  if (!others.empty())
    note("the checkpoint was trained on other data for " + others +
         "; from here on a step takes its rows from this");
}

static std::string shortest(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

/// Another rate may be meant. Sums of gradients that the plan does not keep go.
void Session::noteOtherSettings(const Checkpoint &checkpoint) const {
  std::string its, mine, dropped;
  for (const auto &[name, values] : checkpoint.otherSettings(plan)) {
    const char *comma = its.empty() ? "" : ", ";
    its += comma + name + "=" + shortest(values.first);
    mine += comma + name + "=" + shortest(values.second);
    if (name == "momentum" && values.second == 0)
      dropped = "; the momentum that it has is left out";
  }
  if (!its.empty())
    note("the checkpoint was trained with " + its + ", the plan goes on with " +
         mine + dropped);
  if (!checkpoint.rate.empty() && checkpoint.rate != options.rate)
    note("the checkpoint was trained with --lr-schedule " + checkpoint.rate +
         ", this run goes on with " + options.rate);
}

/// Ranks of one machine share a clock; another machine's is compared with rank
/// 0's, as closely as a message allows.
void Session::compareClocks() {
  double theirs = now();
  council.tell("comparing clocks", &theirs, sizeof theirs);
  const double difference = theirs - now();
  clockOffset = std::abs(difference) < 0.05 ? 0 : difference;
}

void Session::stepDone(int64_t step, double loss) {
  results.losses.push_back(loss);
  if (plan.strategy.update == "round") { // a step is a microbatch
    const double time = now();
    writeStep(step, time - lastTime);
    lastTime = time;
  }
}

void Session::writeStep(int64_t step, double time) {
  results.seconds.push_back(time);
  const double samples = static_cast<double>(plan.training.microbatches) *
                         plan.training.microbatch_size;
  metrics->step(step, results.losses.back(), time,
                time > 0 ? samples / time : 0);
}

/// Rank 0 decides for all.
bool Session::decideToStop() {
  int64_t stop = leads() && stopRequested();
  council.tell("waiting for the word to go on", &stop, sizeof stop);
  return stop != 0;
}

void Session::trainSteps() {
  StepPhases phases(leads(), "training", lastStep);
  LossLedger ledger(plan, options.plan, *data, transport, watch, firstStep,
                    [&](int64_t step, const Losses &losses) {
                      stepDone(step, meanLoss(losses));
                    });
  TaskRunner runner(*state, watch, *data, recorder, numbers);
  StepExecutor executor({*state, transport, watch, ledger, runner, recorder});
  const WhileWaiting polling(watch, [&] { ledger.poll(); });
  while (stepsDone < lastStep && !stopped) {
    executor.tasks(stepsDone);
    executor.update(stepsDone, leads() && stopRequested());
    ledger.waitFor(stepsDone + 1);
    ++stepsDone;
    stopped = executor.postValidates() ? executor.stopping() : decideToStop();
    const double time = now();
    recorder.totals.endStep(stepsDone - 1, time - lastTime);
    if (leads()) {
      writeStep(stepsDone - 1, time - lastTime);
      phases.at(stepsDone, results.losses.back());
    }
    lastTime = time;
    const int64_t every = options.checkpointEvery;
    const bool due =
        (every && stepsDone % every == 0) || stopped || stepsDone == lastStep;
    if (due)
      executor.settle();
    checkpoint(due);
  }
  ledger.close();
}

void Session::trainStream() {
  StepPhases phases(leads(), "training", lastStep);
  LossLedger ledger(plan, options.plan, *data, transport, watch, firstStep,
                    [&](int64_t step, const Losses &losses) {
                      stepDone(step, meanLoss(losses));
                      phases.at(step + 1, results.losses.back());
                    });
  TaskRunner runner(*state, watch, *data, recorder, numbers);
  StreamExecutor executor({*state, transport, watch, ledger, runner, recorder});
  const int64_t round = plan::roundLength(plan);
  const int64_t every = options.checkpointEvery;
  while (stepsDone < lastStep && !stopped) {
    int64_t due = lastStep;
    if (every) { // the next checkpoint, after whole rounds
      const int64_t next = (stepsDone / every + 1) * every;
      due = std::min(due, (next + round - 1) / round * round);
    }
    int64_t end = due;
    if (executor.longest() < end - stepsDone)
      end = stepsDone + executor.longest();
    stepsDone = executor.run(stepsDone, end, stopRequested);
    const WhileWaiting polling(watch, [&] { ledger.poll(); });
    ledger.waitFor(stepsDone);
    stopped = decideToStop();
    if (!stopped && stepsDone != due)
      continue;
    if (stepsDone % round == 0)
      checkpoint(true);
    else if (leads() && !options.checkpoint.empty())
      remark("no checkpoint after step " + std::to_string(stepsDone) +
             ": the stages' rounds end together every " +
             std::to_string(round) + " steps");
  }
  ledger.close();
}

void Session::checkpoint(bool due) {
  if (!due || options.checkpoint.empty() || saved == stepsDone)
    return;
  saveCheckpoint(*state, council, options.checkpoint, stepsDone,
                 {options.seed, options.shuffle, data->marks(), options.rate});
  saved = stepsDone;
  rememberCheckpoint(options.checkpoint, saved);
}

/// Rank 0 does `work` with tensors of all ranks; the others serve it.
void Session::withTensors(const char *what,
                          const std::function<void(const Fetch &)> &work) {
  council.agree(what, [&] {
    TensorExchange exchange(*state, transport, watch, stepsDone);
    if (!leads())
      return exchange.serve();
    // The others serve until told otherwise, also when the work fails.
    try {
      work([&](int index, const Sink &sink) { exchange.fetch(index, sink); });
    } catch (const Alarmed &) {
      throw;
    } catch (const Failure &) {
      exchange.finish();
      throw;
    }
    exchange.finish();
  });
}

void Session::collect() {
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  RankResult mine;
  mine.figures.cores = coreUse() - loaded;
  mine.figures.peak_bytes = state->arena.peak();
  mine.figures.predicted_peak_bytes = plan.ranks[watch.rank].peak_bytes;
  mine.figures.rss_bytes = int64_t(usage.ru_maxrss) * 1024;
  for (auto &[what, bytes] : state->device->overhead())
    mine.figures.overhead_bytes += bytes;
  const DeviceFacts facts = state->device->facts();
  mine.figures.hasGpuCode = facts.hasCode;
  mine.figures.isPtx = facts.isPtx;
  mine.figures.biasesAdded = facts.biasesAdded;
  mine.figures.biasesRefused = facts.biasesRefused;
  mine.figures.attended = facts.attended;
  mine.figures.tuned = facts.tuned;
  mine.figures.busy_s = recorder.busy;
  mine.figures.threads = threadsOfThisRank();
  mine.droppedEvents = recorder.dropped;
  mine.totals = recorder.totals.middle();
  mine.events = recorder.events;
  for (Event &event : mine.events)
    event.start += clockOffset, event.end += clockOffset;
  council.gather("gathering figures", pack(mine),
                 [&](int, const std::string &message) {
                   results.ranks.push_back(unpack(message));
                 });
}

void Session::report() {
  collect();
  council.agree("writing results", [&] {
    if (!leads())
      return;
    const Summary summary = summarize(plan, results);
    const bool idle = state->trains && summary.steps == 0;
    metrics->summary(summary);
    if (!options.trace.empty())
      writeTrace(plan, results, options.trace);
    if (!options.profileOut.empty() && !idle)
      writeProfile(plan, results, options.profileOut);
    const report::MeasuredRun run = measured(plan, results);
    try {
      if (!options.evaluate && !idle) // whose page is that of the training
        report::writeReport(plan, options.plan + "/report.html", &run);
    } catch (const Failure &failure) { // a plan may lie where nobody writes
      note(std::string("no report: ") + failure.what());
    }
    if (options.json)
      std::cout << toJson(summary) << "\n";
    else if (idle)
      std::cout << "nothing left to do: the checkpoint in " << options.resume
                << " has done all " << lastStep
                << " steps (they count from the very first)\n";
    else
      std::cout << headline(summary) << "\n"
                << (options.quiet ? "" : report::runSummary(plan, run));
    std::cout.flush();
    if (stopped)
      remark("stopped on request after step " + std::to_string(stepsDone) +
             "; " +
             (options.checkpoint.empty()
                  ? "nothing is saved: that takes --checkpoint DIR"
                  : "go on with --resume " + shellWord(options.checkpoint)));
  });
}

} // namespace pipec
