//===- PostValidation.cpp - an update that waits for nobody ---------------===//
#include "runtime/exec/PostValidation.h"
#include "runtime/program/Memory.h"

#include <algorithm>

namespace pipec {

PostValidation::PostValidation(RankState &state, Transport &transport,
                               Watch &watch, const GradientNorm &norm,
                               TaskRunner &runner)
    : state(state), transport(transport), watch(watch), norm(norm),
      runner(runner), norms(state.plan.weights.size() + 1),
      received(norms.size()) {}

Operation PostValidation::operation(const char *what, int peer) const {
  Operation result;
  result.what = what;
  result.peer = peer;
  result.step = step;
  return result;
}

void PostValidation::apply(double scale) {
  for (auto &unit : state.units)
    runner.update(*unit, step, step, scale);
}

/// Copies weights and optimizer state to the undo buffer, or back.
void PostValidation::keep(bool back) {
  char *place = state.undo;
  for (auto &unit : state.units)
    for (char *live :
         {unit->memory.weights(step), unit->memory.at(PIPEC_OPTIMIZER)}) {
      const int64_t bytes = unit->memory.bytes(
          live == unit->memory.weights(step) ? PIPEC_WEIGHTS : PIPEC_OPTIMIZER);
      if (bytes == 0)
        continue;
      state.device->copy(back ? live : place, back ? place : live, bytes);
      place += plan::alignUp(bytes);
    }
}

void PostValidation::finish() {
  watch.wait(transport, toNext,
             operation("waiting to hand on the gradient norm", state.rank + 1));
  watch.wait(transport, toPrevious,
             operation("waiting to tell the verdict", state.rank - 1));
}

void PostValidation::update(int64_t newStep, bool stop) {
  finish(); // what the last step has sent lies in the buffers filled now
  step = newStep;
  const double limit = state.plan.training.clip_norm;
  const auto bytes = static_cast<int64_t>(norms.size() * sizeof(float));
  std::fill(norms.begin(), norms.end(), 0.0f);
  if (limit > 0)
    norm.measure(norms.data());
  norms.back() = stop;
  if (state.rank > 0) {
    Request request =
        transport.receive(state.rank - 1, kTagPrefix, received.data(), bytes);
    watch.wait(transport, request,
               operation("waiting for the gradient norm", state.rank - 1));
    for (size_t i = 0; i < norms.size(); ++i)
      norms[i] += received[i]; // one of the two is 0
  }
  if (!last())
    toNext = transport.send(state.rank + 1, kTagPrefix, norms.data(), bytes);
  coefficient = limit > 0 ? GradientNorm::coefficientOf(
                                norms.data(),
                                static_cast<int64_t>(norms.size()) - 1, limit)
                          : 1;
  waiting = true;
  updated = last() || coefficient == 1;
  if (updated && limit > 0 && !last())
    keep(false);
  if (updated)
    apply(coefficient);
}

bool PostValidation::settle(const std::function<void()> &refused) {
  if (!waiting)
    return true;
  waiting = false;
  if (!last()) {
    Request request = transport.receive(state.rank + 1, kTagVerdict,
                                        &coefficient, sizeof coefficient);
    watch.wait(
        transport, request,
        operation("waiting for the verdict on the update", state.rank + 1));
  }
  const bool stands = coefficient == 1;
  if (!stands)
    refused();
  if (state.rank > 0)
    toPrevious = transport.send(state.rank - 1, kTagVerdict, &coefficient,
                                sizeof coefficient);
  if (stands || last())
    return stands;
  if (updated)
    keep(true);
  apply(coefficient);
  return false;
}

} // namespace pipec
