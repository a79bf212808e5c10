//===- StepExecutor.cpp - one synchronous optimizer step ------------------===//
#include "runtime/exec/Executor.h"

namespace pipec {

StepExecutor::StepExecutor(const Crew &crew)
    : crew(crew), traffic(crew.state, crew.transport, crew.watch),
      collectives(crew.state, crew.transport, crew.watch),
      norm(crew.state, crew.transport, crew.watch),
      sequence(plan::Sequence::step(crew.state.plan, crew.state.rank)) {}

void StepExecutor::tasks(int64_t step) {
  for (auto &unit : crew.state.units)
    TaskRunner::zeroGradients(*unit);
  traffic.start(sequence, step);
  for (int64_t i = 0; i < sequence.size(); ++i) {
    const plan::Task task = sequence.at(i);
    crew.watch.check();
    traffic.before(task);
    const float loss = crew.runner.run(task, step, task.microbatch, step);
    traffic.after(task);
    if (task.kind == 'F' && crew.state.unit(task.stage).stage->computes_loss)
      crew.losses.record(step, task.microbatch, loss);
    crew.losses.poll();
  }
}

void StepExecutor::update(int64_t step) {
  if (!crew.state.trains)
    return traffic.finish();
  const double start = now();
  for (auto &unit : crew.state.units) {
    collectives.reduceGradients(*unit, step);
    collectives.shareStats(*unit, step);
  }
  collectives.foldTies(step);
  double scale = 1;
  const plan::Training &training = crew.state.plan.training;
  if (training.clip_norm > 0)
    scale = norm.coefficient(training.clip_norm, step);
  crew.recorder.add({'R', -1, step, -1, start, now()});
  for (auto &unit : crew.state.units) {
    for (int k = 0; k < training.microbatches; ++k)
      crew.runner.track(*unit, unit->memory.at(PIPEC_STATS, k), step, k);
    crew.runner.update(*unit, step, step, scale);
  }
  traffic.finish();
}

} // namespace pipec
