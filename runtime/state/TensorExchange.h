//===- TensorExchange.h - tensors of all ranks, at rank 0 -------*- C++ -*-===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/exec/RankState.h"

#include <functional>

namespace pipec {

/// Takes a tensor's bytes, piece by piece.
using Sink = std::function<void(const char *, int64_t)>;

/// After training: rank 0 asks for one tensor after the other, in any order;
/// the other ranks serve until it is done. Takes 1 MiB, however large the
/// tensors.
class TensorExchange {
public:
  TensorExchange(RankState &state, Transport &transport, Watch &watch,
                 int64_t steps)
      : state(state), transport(transport), watch(watch), steps(steps) {}

  /// Rank 0: the newest value of weight or state `index` goes to the sink.
  void fetch(int index, const Sink &sink);
  /// Rank 0: the others may go on.
  void finish();
  /// The others: answers until rank 0 has finished.
  void serve();

private:
  RankState &state;
  Transport &transport;
  Watch &watch;
  int64_t steps;
  std::vector<char> buffer;
};

} // namespace pipec
