//===- Executor.h - a rank's program, run -----------------------*- C++ -*-===//
#pragma once

#include "runtime/exec/Collectives.h"
#include "runtime/exec/GradientNorm.h"
#include "runtime/exec/LossLedger.h"
#include "runtime/exec/OutputLedger.h"
#include "runtime/exec/PostValidation.h"
#include "runtime/exec/TaskRunner.h"
#include "runtime/exec/Traffic.h"

#include <optional>

namespace pipec {

/// What an executor works with.
struct Crew {
  RankState &state;
  Transport &transport;
  Watch &watch;
  LossLedger &losses;
  TaskRunner &runner;
  Recorder &recorder;
  OutputLedger *outputs = nullptr; ///< of a plan of forwards alone
};

/// Synchronous strategies: every rank does its tasks of the step, then sums the
/// gradients and updates in place. With post-validation an update may be made
/// again while the next step has begun.
class StepExecutor {
public:
  explicit StepExecutor(const Crew &crew);

  /// One step's tasks.
  void tasks(int64_t step);
  /// Sums, running statistics, clipping, update. Nothing for a plan of forwards
  /// alone. With post-validation `stop` of rank 0 reaches stopping() of all.
  void update(int64_t step, bool stop = false);

  /// \name Post-validation
  /// @{
  bool postValidates() const { return validation.has_value(); }
  bool stopping() const { return validation->stopping(); }
  /// The weights are final when it returns.
  void settle();
  /// @}

private:
  void run(const plan::Task &task, int64_t step);
  void takeLosses();
  void finishStep();

  Crew crew;
  std::unique_ptr<Traffic> traffic;
  Collectives collectives;
  GradientNorm norm;
  plan::Sequence sequence;
  std::optional<PostValidation> validation;
  int64_t ahead = 0;                  ///< tasks that may run before the verdict
  std::vector<int64_t> messagesAhead; ///< by edge, what these send here
  struct Loss {
    int64_t step, microbatch;
    const float *place;
  };
  std::vector<Loss> losses; ///< not looked at yet
};

/// PipeDream: an update after every round of a stage (its replicas'
/// microbatches j*r ... j*r + r-1), weights kept in a ring, no flush. On a
/// device that works behind its calls a run cannot be halted.
class StreamExecutor {
public:
  explicit StreamExecutor(const Crew &crew);

  /// Runs microbatches [first, last), then drains. `first` is a multiple of
  /// roundLength. Returns where it ended: before `last` when rank 0 saw
  /// `stop()`; a multiple of roundLength then.
  int64_t run(int64_t first, int64_t last, const std::function<bool()> &stop);

  /// How many microbatches one run() may be of at most, and how soon the job
  /// can stop.
  int64_t longest() const;

private:
  void run(const plan::Task &task);
  /// Waits for the device and records its losses and times.
  void catchUp();
  bool halts() const;
  void finishRound(int64_t round, const char *statsRow);
  void halt(int64_t end);
  void pollHalt(const std::function<bool()> &stop);
  int64_t haltPoint() const;

  Crew crew;
  const plan::Plan &plan;
  StageUnit *unit;
  std::unique_ptr<Traffic> traffic;
  Collectives collectives;
  plan::Sequence whole, sequence; ///< as begun; as it is after a halt
  int64_t first = 0, end = 0;
  int64_t started = 0; ///< microbatches up to here have had their forward
  bool halted = false;
  int64_t haltMessage = 0;
  Request haltRequest = kNoRequest;
  /// Not looked at yet: of microbatches.
  std::vector<std::pair<int64_t, const float *>> losses;
};

} // namespace pipec
