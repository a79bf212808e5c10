//===- Collectives.h - sums over replicas and uses, in fixed order -*- C++ -*-//
//
// All sums have one order, whatever arrives first: replicas ascending, uses of
// a weight ascending. So the bits do not depend on timing, and for uses of a
// weight not on the partition either.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/exec/Exchange.h"
#include "runtime/exec/RankState.h"
#include "runtime/exec/ReplicaSum.h"
#include "runtime/program/Memory.h"

#include <functional>

namespace pipec {

class Collectives {
public:
  Collectives(RankState &state, Transport &transport, Watch &watch);

  /// GRADIENTS of all replicas of the stage become their sum (ReplicaSum.h).
  void reduceGradients(StageUnit &unit, int64_t step);

  /// Sum over the uses of every tied weight, left in gradients[0] of every
  /// copy. All ranks that hold a copy take part.
  void foldTies(int64_t step);

  /// A step program: every replica gets the statistics rows of all
  /// microbatches.
  void shareStats(StageUnit &unit, int64_t step);

  /// A stream: calls use(row) for the row of each microbatch of the round, in
  /// ascending order. `mine` is this replica's row, null when it has none;
  /// `present` is how many replicas have one (the first ones).
  void roundStats(StageUnit &unit, const char *mine, int present, int64_t step,
                  const std::function<void(const char *)> &use);

private:
  void foldHere(const plan::Tie &tie);
  void foldPiece(const plan::Tie &tie, const std::vector<int> &leads,
                 int64_t piece, int64_t step);
  void handOut(const plan::Tie &tie, const std::vector<int> &leads,
               int64_t step);
  char *home(const plan::Tie &tie);

  RankState &state;
  const plan::Plan &plan;
  const std::unique_ptr<Exchange> exchange;
  ReplicaSum replicas;
  std::vector<plan::Tie> ties;        ///< those of this rank's stages
  std::vector<const float *> sources; ///< of a sum
};

} // namespace pipec
