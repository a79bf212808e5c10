//===- KernelWork.h - what a tuned CPU routine has to do --------*- C++ -*-===//
//
// Products and convolutions of small tensors are far from any peak: they pack
// operands, go through k in short blocks and write their result once a block.
// Each routine's time is taken as a sum of such amounts, each with a cost that
// `pipec calibrate` fits to timings of many shapes (by least squares, no cost
// below 0).
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pipec::plan {

/// A routine and how much of everything it does.
struct KernelWork {
  std::string kernel;          ///< a key of kernelAmounts(); empty: none fits
  std::vector<double> amounts; ///< in the order of kernelAmounts()
  bool divides = false;        ///< among the threads of a rank
};

/// What a generated kernel does, every instruction as often as it runs. Vectors
/// count in registers of 64 bytes.
struct InstructionCounts {
  double rounds = 0;    ///< of loops
  double scalars = 0;   ///< instructions on single numbers
  double vectors = 0;   ///< on vectors, but for those below
  double divisions = 0; ///< and roots
  double moves = 0;     ///< between the lanes of a vector
  double loads = 0, stores = 0;
  double strided = 0; ///< elements, each with an address of its own
  double calls = 0;   ///< of library functions, for an element each
  double touched = 0; ///< bytes of memory, each counted once
};
KernelWork generatedWork(const InstructionCounts &counts, bool divides);

/// A strided copy: rows of the innermost loop, and its bytes by how both sides
/// are walked.
struct CopyShape {
  double rows = 0, contiguous = 0, strided = 0, transposed = 0;
  bool divides = false;
};
KernelWork copyWork(const CopyShape &shape);

/// Rows of a table by index, read or (`adds`) added to; `cleared` bytes first.
struct GatherShape {
  double rows = 0, bytes = 0, cleared = 0;
  bool adds = false, divides = false;
};
KernelWork gatherWork(const GatherShape &shape);

/// Pooling: windows, and the taps of all of them. `name` as in
/// kernelAmounts(): "max-pool-grad", "avg-pool", "avg-pool-grad".
struct PoolShape {
  double planes = 0, in = 0, out = 0, taps = 0;
  bool divides = false;
};
KernelWork poolWork(const std::string &name, const PoolShape &shape);

/// A maximum pool: lines of windows, and their taps by how they are looked at:
/// of many windows at a time, of one after the other, of those windows that
/// meet the border.
struct MaxPoolShape {
  double planes = 0, lines = 0, vectors = 0, scalars = 0, windows = 0,
         border = 0;
  bool divides = false;
};
KernelWork poolWork(const MaxPoolShape &shape);

/// Routine -> what its amounts are called.
const std::map<std::string, std::vector<std::string>> &kernelAmounts();

/// What a processor computes of a product at a time, in its registers.
struct ProductTile {
  int rows = 4, lanes = 8, vectors = 3;
  bool operator==(const ProductTile &) const = default;
};

/// `batch` products of m x k and k x n.
struct ProductShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transposeA = false, transposeB = false;
  bool bf16 = false; ///< the factors; the sums are f32
};
KernelWork productWork(const ProductShape &shape, const ProductTile &tile);

} // namespace pipec::plan
