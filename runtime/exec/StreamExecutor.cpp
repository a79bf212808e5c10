//===- StreamExecutor.cpp - PipeDream: one forward, one backward, no flush ===//
#include "runtime/exec/Executor.h"
#include "runtime/program/Versions.h"

#include <algorithm>

namespace pipec {

using plan::Sequence;
using plan::Task;

/// A device that works behind its calls is not left further behind than this:
/// what it is fed takes memory until it has been done.
constexpr int64_t kTasksUnderWay = 32;

StreamExecutor::StreamExecutor(const Crew &crew)
    : crew(crew), plan(crew.state.plan),
      unit(crew.state.units[0].get()), // a stream has one stage a rank
      traffic(
          crew.state.device->traffic(crew.state, crew.transport, crew.watch)),
      collectives(crew.state, crew.transport, crew.watch) {}

int64_t StreamExecutor::run(int64_t from, int64_t last,
                            const std::function<bool()> &stop) {
  Device &device = *crew.state.device;
  first = from, end = last, started = from, halted = false;
  whole = Sequence::stream(plan, crew.state.rank, first, end);
  sequence = whole;
  if (halts() && crew.state.rank != 0)
    haltRequest =
        crew.transport.receive(0, kTagHalt, &haltMessage, sizeof haltMessage);
  const WhileWaiting polling(crew.watch, [&] {
    crew.losses.poll();
    if (crew.state.rank != 0)
      pollHalt(stop);
  });
  device.begin(0);
  crew.runner.zeroGradients(*unit, first);
  traffic->start(whole, first, end);
  for (int64_t i = 0; i < sequence.size(); ++i) {
    crew.watch.check();
    pollHalt(stop);
    if (i >= sequence.size())
      break;
    const Task task = sequence.at(i);
    started = std::max(started, task.microbatch + 1);
    run(task);
    if (task.kind == 'B')
      finishRound(task.local,
                  unit->memory.at(PIPEC_STATS, task.slot[PIPEC_STATS]));
    if (device.isImmediate() || i % kTasksUnderWay == kTasksUnderWay - 1)
      catchUp();
  }
  // A replica without a microbatch in the last round takes its update, too.
  const int64_t rounds = plan::updatesAfter(plan, *unit->stage, end);
  if ((rounds - 1) * unit->replicas() + unit->replica >= end && rounds > 0)
    finishRound(rounds - 1, nullptr);
  traffic->finish();
  device.end(0);
  catchUp();
  if (halts())
    crew.transport.cancel(haltRequest);
  return end;
}

void StreamExecutor::run(const Task &task) {
  traffic->before(task);
  const int64_t version =
      task.kind == 'F' ? plan::forwardVersion(plan, *unit->stage, task.local)
                       : plan::backwardVersion(plan, *unit->stage, task.local);
  const float *loss = crew.runner.run(task, task.microbatch, 0, version);
  traffic->after(task);
  if (loss)
    losses.push_back({task.microbatch, loss});
}

void StreamExecutor::catchUp() {
  crew.state.device->settle();
  crew.runner.recordTimes();
  for (auto &[microbatch, place] : losses)
    crew.losses.record(microbatch, 0, *place);
  losses.clear();
  crew.losses.poll();
}

int64_t StreamExecutor::longest() const {
  constexpr int64_t kRounds = 256; // what draining the pipeline costs is little
  return halts() ? INT64_MAX : kRounds * plan::roundLength(plan);
}

bool StreamExecutor::halts() const { return crew.state.device->isImmediate(); }

void StreamExecutor::finishRound(int64_t round, const char *statsRow) {
  const int64_t replicas = unit->replicas();
  const int64_t step = round * replicas;
  const auto present = static_cast<int>(std::min(replicas, end - step));
  const Mark start = crew.state.device->mark();
  traffic->beforeRound();
  collectives.reduceGradients(*unit, step);
  collectives.foldTies(step);
  int64_t microbatch = step;
  if (unit->stage->tracks)
    collectives.roundStats(*unit, statsRow, present, step,
                           [&](const char *row) {
                             crew.runner.track(*unit, row, microbatch++, 0);
                           });
  crew.runner.ended({'R', -1, step, -1, 0, 0}, start);
  crew.runner.update(*unit, round, step, 1.0 / present);
  crew.runner.zeroGradients(*unit, step);
}

/// The first microbatch that no rank can have touched or waits for: what rank 0
/// has begun, plus what the replicas beside it, and the stages before and after
/// it, may have in flight.
int64_t StreamExecutor::haltPoint() const {
  const int64_t mine = unit->replicas();
  int64_t beyond = 0;
  for (const plan::Stage &stage : plan.stages)
    beyond = std::max(beyond, (stage.warmup + 3) *
                                  static_cast<int64_t>(stage.ranks.size()));
  const int64_t round = started / mine + unit->stage->warmup + 4;
  const int64_t length = plan::roundLength(plan);
  return (round * mine + beyond + length - 1) / length * length;
}

void StreamExecutor::pollHalt(const std::function<bool()> &stop) {
  if (halted || !halts())
    return;
  if (crew.state.rank != 0) {
    if (haltRequest == kNoRequest || !crew.transport.done(haltRequest))
      return;
    halt(haltMessage);
    Request answer =
        crew.transport.send(0, kTagHaltAck, &haltMessage, sizeof haltMessage);
    // Rank 0 waits for it: this ends.
    while (!crew.transport.done(answer))
      crew.watch.check();
    return;
  }
  if (!stop())
    return;
  halted = true;
  haltMessage = haltPoint();
  if (haltMessage >= end)
    return; // the end is as near
  Operation operation;
  operation.what = "waiting for all ranks to stop";
  for (int rank = 1; rank < crew.transport.size(); ++rank) {
    operation.peer = rank;
    int64_t answered = 0;
    Request answer =
        crew.transport.receive(rank, kTagHaltAck, &answered, sizeof answered);
    Request order =
        crew.transport.send(rank, kTagHalt, &haltMessage, sizeof haltMessage);
    crew.watch.wait(crew.transport, order, operation);
    crew.watch.wait(crew.transport, answer, operation);
  }
  halt(haltMessage);
}

void StreamExecutor::halt(int64_t newEnd) {
  halted = true;
  if (newEnd >= end)
    return;
  end = newEnd;
  sequence = Sequence::stream(plan, crew.state.rank, first, end);
  traffic->shorten(sequence, end);
}

} // namespace pipec
