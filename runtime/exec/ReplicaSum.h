//===- ReplicaSum.h - gradients summed over replicas ------------*- C++ -*-===//
#pragma once

#include "runtime/exec/Exchange.h"
#include "runtime/exec/RankState.h"

#include <functional>

namespace pipec {

/// Bytes [begin, begin + length) of something.
struct Span {
  int64_t begin = 0, length = 0;
};

/// Piece `index` of slice `owner` of `total` bytes that `parties` add up: each
/// takes a slice, in pieces of `most` bytes.
Span pieceOf(int64_t total, int parties, int owner, int64_t index,
             int64_t most);

class ReplicaSum {
public:
  /// to[i] = terms[0][i] + terms[1][i] + ..., after what `exchange` has brought
  /// and before what it takes next.
  using Add = std::function<void(
      float *to, const std::vector<const float *> &terms, int64_t count)>;

  ReplicaSum(RankState &state, Exchange &exchange, Add add)
      : state(state), exchange(exchange), add(std::move(add)) {}

  /// A span of GRADIENTS of all replicas of the stage becomes their sum, added
  /// in the order of the replicas. Each adds up one slice and hands it out, in
  /// pieces: 2(r-1)/r of the bytes are sent.
  void run(const StageUnit &unit, Span span, int64_t step);

private:
  RankState &state;
  Exchange &exchange;
  const Add add;
  std::vector<const float *> sources;
};

} // namespace pipec
