//===- PostValidation.h - an update that waits for nobody -------*- C++ -*-===//
//
// Clipping needs the gradient norm of all stages, so a plain step ends with a
// barrier, and a schedule whose ranks end one after the other gains nothing by
// it. Here (Qi et al., ICLR 2024, "bypassing optimizer synchronizations") the
// norms go from rank to rank: each adds its own, hands them on, and unless what
// it has seen already asks for clipping (or is no number) updates at once as if
// nothing did. The last rank knows the norm of all; its verdict goes back from
// rank to rank while these run the first forwards of the next step. A rank that
// must clip after all goes back to the weights and the optimizer state from
// before, updates again with the right coefficient, and begins the next step
// again: the same bits as with the barrier.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/exec/GradientNorm.h"
#include "runtime/exec/TaskRunner.h"

#include <functional>

namespace pipec {

class PostValidation {
public:
  PostValidation(RankState &state, Transport &transport, Watch &watch,
                 const GradientNorm &norm, TaskRunner &runner);

  /// Hands the norms on and updates; the gradients must stay until settle().
  /// `stop` of rank 0 reaches all ranks.
  void update(int64_t step, bool stop);

  /// True from update() to settle().
  bool pending() const { return waiting; }

  /// Waits for the verdict and tells the rank before. True: the update stands.
  /// False: all ranks have to begin the next step again; the update has been
  /// made anew. `refused` is called before any other rank can know.
  bool settle(const std::function<void()> &refused);

  /// Waits until what has been sent has arrived.
  void finish();

  /// Whether rank 0 wants to stop after the last update.
  bool stopping() const { return norms.back() != 0; }

private:
  Operation operation(const char *what, int peer) const;
  void apply(double scale);
  void keep(bool back);
  bool last() const { return state.rank + 1 == transport.size(); }

  RankState &state;
  Transport &transport;
  Watch &watch;
  const GradientNorm &norm;
  TaskRunner &runner;
  int64_t step = 0;
  bool waiting = false, updated = false;
  float coefficient = 1;
  std::vector<float> norms, received; ///< by weight, then rank 0's `stop`
  Request toNext = kNoRequest, toPrevious = kNoRequest;
};

} // namespace pipec
