//===- TaskRunner.cpp - calls of a stage program --------------------------===//
#include "runtime/exec/TaskRunner.h"

namespace pipec {
namespace {

const char *phrase(char kind) {
  switch (kind) {
  case 'F':
    return "computing the forward";
  case 'B':
    return "computing the backward";
  case 'I':
    return "computing the input gradient";
  default:
    return "computing the weight gradient";
  }
}

Operation computing(const char *what, int stage, int64_t step,
                    int64_t microbatch) {
  Operation operation;
  operation.what = what;
  operation.stage = stage;
  operation.step = step;
  operation.microbatch = microbatch;
  return operation;
}

} // namespace

PipecFrame TaskRunner::frame(const StageUnit &unit, int64_t step,
                             int64_t microbatch) const {
  PipecFrame frame{};
  for (int region = 0; region < PIPEC_REGION_COUNT; ++region)
    frame.base[region] = unit.memory.at(static_cast<PipecRegion>(region));
  frame.step = step;
  frame.microbatch = microbatch;
  frame.seed = numbers.seed;
  frame.lr_factor = frame.grad_scale = 1;
  return frame;
}

void TaskRunner::call(StageUnit &unit, PipecTask task, PipecFrame &frame,
                      Event event) {
  const Mark start = state.device->mark();
  frame.device = unit.device;
  state.device->run(task, frame);
  ended(event, start);
}

void TaskRunner::ended(const Event &event, const Mark &start) {
  timed.push_back({event, start, state.device->mark()});
  if (state.device->isImmediate())
    recordTimes();
}

void TaskRunner::recordTimes() {
  for (Timed &one : timed) {
    state.device->resolve(one.start);
    state.device->resolve(one.end);
    one.event.start = one.start.time, one.event.end = one.end.time;
    recorder.add(one.event, one.end.core - one.start.core);
  }
  timed.clear();
}

const float *TaskRunner::run(const plan::Task &task, int64_t step,
                             int64_t microbatch, int64_t version) {
  StageUnit &unit = state.unit(task.stage);
  watch.enter(computing(phrase(task.kind), task.stage, step, microbatch));
  PipecFrame frame = this->frame(unit, step, microbatch);
  for (auto [region, name] : plan::kSlotted)
    frame.base[region] = unit.memory.at(region, task.slot[region]);
  frame.base[PIPEC_WEIGHTS] = unit.memory.weights(version);
  if (task.kind == 'F')
    for (const plan::StageInput &input : unit.stage->inputs)
      state.device->feed(
          frame.base[PIPEC_IN] + input.offset,
          state.plan.inputs[input.input].bytes, [&](char *to) {
            data.load(input.input,
                      step * state.plan.training.microbatches + microbatch, to);
          });
  call(unit, unit.library.task(task.kind), frame,
       {task.kind, task.stage, step, microbatch, 0, 0});
  if (task.kind == 'F' && unit.stage->computes_loss)
    return state.device->fetch(frame.base[PIPEC_LOSS]);
  return nullptr;
}

void TaskRunner::track(StageUnit &unit, const char *row, int64_t step,
                       int64_t microbatch) {
  if (!unit.library.track)
    return;
  PipecFrame frame = this->frame(unit, step, microbatch);
  frame.base[PIPEC_STATS] = const_cast<char *>(row);
  call(unit, unit.library.track, frame,
       {'T', unit.stage->id, step, microbatch, 0, 0});
}

void TaskRunner::update(StageUnit &unit, int64_t version, int64_t step,
                        double gradScale) {
  if (!unit.library.update)
    return;
  watch.enter(computing("updating weights", unit.stage->id, step, -1));
  PipecFrame frame = this->frame(unit, step, 0);
  frame.base[PIPEC_WEIGHTS] = unit.memory.weights(version);
  frame.base[PIPEC_NEW_WEIGHTS] = unit.memory.weights(version + 1);
  frame.lr_factor = numbers.rate(step);
  frame.grad_scale = gradScale;
  frame.update = version + 1;
  call(unit, unit.library.update, frame, {'U', unit.stage->id, step, -1, 0, 0});
}

void TaskRunner::zeroGradients(StageUnit &unit, int64_t step) {
  const Mark start = state.device->mark();
  state.device->clear(unit.memory.at(PIPEC_GRADIENTS),
                      unit.memory.bytes(PIPEC_GRADIENTS));
  ended({'Z', unit.stage->id, step, -1, 0, 0}, start);
}

} // namespace pipec
