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

/// Routine -> what its amounts are called.
const std::map<std::string, std::vector<std::string>> &kernelAmounts();

/// `batch` products of m x k and k x n.
struct ProductShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transposeA = false, transposeB = false;
};
KernelWork productWork(const ProductShape &shape);

/// A convolution of `images` pictures or one of its gradients. `in` and `out`
/// are positions of a picture, `taps` of the window.
struct ConvolutionShape {
  int64_t images = 1, channels = 0, outputs = 0, groups = 1;
  int64_t in = 0, out = 0, taps = 1;
};
enum class ConvolutionPass { Forward, BackwardInput, BackwardWeight };
/// `path` as in PipecConvPath (runtime/kernels/cpu/Kernels.h), by its name:
/// "direct", "product", "rows" or "winograd".
KernelWork convolutionWork(const ConvolutionShape &shape, ConvolutionPass pass,
                           const std::string &path);

} // namespace pipec::plan
