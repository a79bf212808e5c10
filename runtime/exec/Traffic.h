//===- Traffic.h - a rank's activations and gradients in flight -*- C++ -*-===//
#pragma once

#include "runtime/program/Sequence.h"

#include <cstdint>
#include <vector>

namespace pipec {

/// Moves what the plan's edges carry.
class Traffic {
public:
  virtual ~Traffic() = default;

  /// Begins a sequence of tasks, of optimizer step `step`, or of a stream that
  /// is microbatches [step, end): posts the first receives. All slots are free.
  virtual void start(const plan::Sequence &sequence, int64_t step,
                     int64_t end) = 0;

  /// What is done after it finds the task's data there and the slots it writes
  /// free.
  virtual void before(const plan::Task &task) = 0;

  /// Sends what the task made, frees what it used, posts more receives.
  virtual void after(const plan::Task &task) = 0;

  /// The last step's update was refused: this sequence begins again on all
  /// ranks, and `before` messages have come or come over each edge that belong
  /// to what was run in vain. takeBack() must be called before any rank from
  /// which such messages come can know; restart() lets them pass and begins.
  virtual void takeBack(const std::vector<int64_t> &before) = 0;
  virtual void restart(const std::vector<int64_t> &before) = 0;

  /// Of a stream: the rank's sums over replicas and uses follow.
  virtual void beforeRound() {}

  /// Waits until all sends are done.
  virtual void finish() = 0;

  /// Whether the gradients of a step's replicas are summed on the way: they are
  /// when finish() returns.
  virtual bool sumsGradients() const { return false; }

  /// The sequence ends earlier than it said: takes back the receives of
  /// microbatches from `end` on. `sequence` is the shorter one; what has been
  /// run is a prefix of it.
  virtual void shorten(const plan::Sequence &sequence, int64_t end) = 0;
};

} // namespace pipec
