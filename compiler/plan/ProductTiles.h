//===- ProductTiles.h - how products go through their tiles -----*- C++ -*-===//
//
// Counts of runtime/kernels/cpu/gemm, for products and for what is computed as
// one.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/KernelWork.h"

namespace pipec::plan {

/// Products of fewer multiply-adds stay on one thread.
inline constexpr double kLeastShared = 65536;

inline int64_t divideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks of k of a product of `work` multiply-adds.
int64_t depthBlocks(int64_t work, int64_t k);

/// What the tiles of a product of m x k and k x n do, in `blocks` of k.
struct TileSums {
  double steps = 0;    ///< multiply-adds of vectors
  double operands = 0; ///< loads for them
  double rounds = 0;   ///< of the loops over k
  double tiles = 0, results = 0;
  double edge = 0; ///< elements of results that are no whole vectors
};
TileSums tileSums(int64_t m, int64_t n, int64_t k, int64_t blocks,
                  const ProductTile &tile);

/// Panels of n columns, which share their vectors evenly.
struct ColumnPanels {
  ColumnPanels(int64_t n, const ProductTile &tile);
  int64_t start(int64_t panel) const;

  int64_t n, lanes, vectors, count;
};

} // namespace pipec::plan
