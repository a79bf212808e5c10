//===- Factors.h - how an nn op may be divided ------------------*- C++ -*-===//
//
// A factor is an index that an op runs over (as the sharding rules of Shardy
// have it): a device that is given a slice of every operand that has the
// factor, and whole ones of the others, computes with the op as it is a slice
// of every result that has it. Results that do not have it come out partial,
// to be summed over all devices. Gradients follow: of an operand that has the
// factor a slice, of one that does not a partial sum. (A maximum has no factor
// where it reduces: its gradient is shared by all that tie, wherever they are.)
//
//===----------------------------------------------------------------------===//
#pragma once

#include "dialects/nn/NN.h"

namespace pipec::nn {

struct Factor {
  static constexpr int kNone = -1;
  int64_t size = 0; ///< a number of devices has to divide it
  /// The dimension of each operand and result, or kNone.
  llvm::SmallVector<int> operands, results;
  bool sums = false; ///< results come out partial

  bool operator==(const Factor &) const = default;
};

/// All factors of more than one element; none of an op that has to see its
/// operands whole.
llvm::SmallVector<Factor> factorsOf(mlir::Operation *op);

} // namespace pipec::nn
