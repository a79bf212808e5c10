//===- TaskRunner.h - calls of a stage program ------------------*- C++ -*-===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/data/DataSource.h"
#include "runtime/exec/RankState.h"
#include "runtime/exec/Recorder.h"
#include "runtime/program/Sequence.h"

#include <functional>

namespace pipec {

/// What the functions of a stage program are told besides their buffers.
struct Numbers {
  uint64_t seed = 0;
  /// Factor on the learning rate at a step, from 0.
  std::function<double(int64_t)> rate;
};

class TaskRunner {
public:
  TaskRunner(RankState &state, Watch &watch, const DataSource &data,
             Recorder &recorder, const Numbers &numbers)
      : state(state), watch(watch), data(data), recorder(recorder),
        numbers(numbers) {}

  /// Runs the task of `microbatch` of `step` on the weights of `version`; the
  /// task's slots are ready. A forward copies the model's inputs first. Returns
  /// where the loss will be after a forward of the stage that computes it, else
  /// null.
  const float *run(const plan::Task &task, int64_t step, int64_t microbatch,
                   int64_t version);

  /// Adds a row of batch statistics to the running ones.
  void track(StageUnit &unit, const char *row, int64_t step,
             int64_t microbatch);

  /// Makes version `version` + 1 from `version` (in place when one is kept).
  /// `step` decides the learning rate.
  void update(StageUnit &unit, int64_t version, int64_t step, double gradScale);

  /// Before the first backward of a step.
  void zeroGradients(StageUnit &unit, int64_t step);

  /// `event` was from `start` to the end of what has been called until now.
  void ended(const Event &event, const Mark &start);

  /// Writes down the times of what has run; the device has settled.
  void recordTimes();

private:
  void call(StageUnit &unit, PipecTask task, PipecFrame &frame, Event event);

  PipecFrame frame(const StageUnit &unit, int64_t step,
                   int64_t microbatch) const;

  RankState &state;
  Watch &watch;
  const DataSource &data;
  Recorder &recorder;
  const Numbers &numbers;
  struct Timed {
    Event event;
    Mark start, end;
  };
  std::vector<Timed> timed; ///< whose times are not known yet
};

} // namespace pipec
