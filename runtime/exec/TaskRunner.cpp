//===- TaskRunner.cpp - calls of a stage program --------------------------===//
#include "runtime/exec/TaskRunner.h"

#include <cstring>

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

float TaskRunner::run(const plan::Task &task, int64_t step, int64_t microbatch,
                      int64_t version) {
  const StageUnit &unit = state.unit(task.stage);
  watch.enter(computing(phrase(task.kind), task.stage, step, microbatch));
  const double start = now(), core = coreSeconds();
  PipecFrame call = frame(unit, step, microbatch);
  for (auto [region, name] : plan::kSlotted)
    call.base[region] = unit.memory.at(region, task.slot[region]);
  call.base[PIPEC_WEIGHTS] = unit.memory.weights(version);
  if (task.kind == 'F')
    for (const plan::StageInput &input : unit.stage->inputs)
      data.load(input.input,
                step * state.plan.training.microbatches + microbatch,
                call.base[PIPEC_IN] + input.offset);
  unit.library.task(task.kind)(&call);
  recorder.add({task.kind, task.stage, step, microbatch, start, now()},
               coreSeconds() - core);
  float loss = 0;
  if (task.kind == 'F' && unit.stage->computes_loss)
    std::memcpy(&loss, call.base[PIPEC_LOSS], sizeof loss);
  return loss;
}

void TaskRunner::track(StageUnit &unit, const char *row, int64_t step,
                       int64_t microbatch) {
  if (!unit.library.track)
    return;
  const double start = now(), core = coreSeconds();
  PipecFrame call = frame(unit, step, microbatch);
  call.base[PIPEC_STATS] = const_cast<char *>(row);
  unit.library.track(&call);
  recorder.add({'T', unit.stage->id, step, microbatch, start, now()},
               coreSeconds() - core);
}

void TaskRunner::update(StageUnit &unit, int64_t version, int64_t step,
                        double gradScale) {
  if (!unit.library.update)
    return;
  watch.enter(computing("updating weights", unit.stage->id, step, -1));
  const double start = now(), core = coreSeconds();
  PipecFrame call = frame(unit, step, 0);
  call.base[PIPEC_WEIGHTS] = unit.memory.weights(version);
  call.base[PIPEC_NEW_WEIGHTS] = unit.memory.weights(version + 1);
  call.lr_factor = numbers.rate(step);
  call.grad_scale = gradScale;
  call.update = version + 1;
  unit.library.update(&call);
  recorder.add({'U', unit.stage->id, step, -1, start, now()},
               coreSeconds() - core);
}

void TaskRunner::zeroGradients(StageUnit &unit) {
  std::memset(unit.memory.at(PIPEC_GRADIENTS), 0,
              static_cast<size_t>(unit.memory.bytes(PIPEC_GRADIENTS)));
}

} // namespace pipec
