//===- StepExecutor.cpp - one synchronous optimizer step ------------------===//
#include "runtime/exec/Executor.h"

#include <algorithm>

namespace pipec {

StepExecutor::StepExecutor(const Crew &crew)
    : crew(crew), traffic(crew.state.device->traffic(crew.state, crew.transport,
                                                     crew.watch)),
      collectives(crew.state, crew.transport, crew.watch),
      norm(crew.state, crew.transport, crew.watch),
      sequence(plan::Sequence::step(crew.state.plan, crew.state.rank)) {
  const plan::Plan &plan = crew.state.plan;
  if (!plan.strategy.post_validation || !crew.state.trains)
    return;
  validation.emplace(crew.state, crew.transport, crew.watch, norm, crew.runner);
  const std::vector<int64_t> all = plan::tasksAhead(plan);
  ahead = all[crew.state.rank];
  messagesAhead.resize(plan.edges.size());
  for (const plan::Edge &edge : plan.edges) {
    const int from = plan.stages[edge.from_stage].ranks[0];
    const auto &actions = plan.ranks[from].program.actions;
    if (!edge.backward)
      messagesAhead[edge.id] =
          std::count_if(actions.begin(), actions.begin() + all[from],
                        [&](const plan::Action &action) {
                          return action.stage == edge.from_stage;
                        });
  }
}

void StepExecutor::run(const plan::Task &task, int64_t step) {
  crew.watch.check();
  traffic->before(task);
  const float *loss = crew.runner.run(task, step, task.microbatch, step);
  traffic->after(task);
  if (crew.outputs)
    crew.outputs->record(*crew.state.device, crew.state.unit(task.stage),
                         step * crew.state.plan.training.microbatches +
                             task.microbatch);
  if (loss)
    losses.push_back({step, task.microbatch, loss});
  if (crew.state.device->isImmediate())
    takeLosses();
}

void StepExecutor::takeLosses() {
  for (const Loss &loss : losses)
    crew.losses.record(loss.step, loss.microbatch, *loss.place);
  losses.clear();
  crew.losses.poll();
}

/// The device has done everything: losses and times are known.
void StepExecutor::finishStep() {
  crew.state.device->settle();
  crew.runner.recordTimes();
  takeLosses();
}

void StepExecutor::tasks(int64_t step) {
  crew.state.device->begin(0);
  traffic->start(sequence, step, step + 1);
  int64_t next = 0;
  if (validation && validation->pending()) {
    while (next < ahead)
      run(sequence.at(next++), step);
    if (!validation->settle([&] { traffic->takeBack(messagesAhead); })) {
      traffic->restart(messagesAhead);
      next = 0;
    }
  }
  for (auto &unit : crew.state.units)
    crew.runner.zeroGradients(*unit, step);
  for (; next < sequence.size(); ++next)
    run(sequence.at(next), step);
  if (!crew.state.trains && !crew.state.device->isImmediate()) {
    traffic->finish();
    crew.state.device->end(0);
    finishStep();
  }
}

void StepExecutor::settle() {
  if (!validation)
    return;
  validation->settle([] {});
  validation->finish();
}

void StepExecutor::update(int64_t step, bool stop) {
  if (!crew.state.trains)
    return traffic->finish();
  Device &device = *crew.state.device;
  const Mark start = device.mark();
  if (!device.isImmediate()) // before the next messages between the same ranks
    traffic->finish();
  for (auto &unit : crew.state.units) {
    if (!traffic->sumsGradients())
      collectives.reduceGradients(*unit, step);
    collectives.shareStats(*unit, step);
  }
  collectives.foldTies(step);
  crew.runner.ended({'R', -1, step, -1, 0, 0}, start);
  double scale = 1;
  const plan::Training &training = crew.state.plan.training;
  if (training.clip_norm > 0) { // the host looks at the gradients
    device.end(0);
    if (!validation)
      scale = norm.coefficient(training.clip_norm, step);
    device.begin(1);
  }
  for (auto &unit : crew.state.units)
    for (int k = 0; k < training.microbatches; ++k)
      crew.runner.track(*unit, unit->memory.at(PIPEC_STATS, k), step, k);
  if (validation)
    validation->update(step, stop);
  else
    for (auto &unit : crew.state.units)
      crew.runner.update(*unit, step, step, scale);
  traffic->finish();
  device.end(training.clip_norm > 0);
  finishStep();
}

} // namespace pipec
