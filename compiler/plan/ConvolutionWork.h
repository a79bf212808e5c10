//===- ConvolutionWork.h - what a convolution's routine does ----*- C++ -*-===//
//
// Counts of runtime/kernels/cpu/conv: convolutions as products whose right
// operand is packed from pictures, as sums of shifted rows, and by transforms.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/KernelWork.h"

#include <array>

namespace pipec::plan {

/// One axis of the pictures and of the window.
struct ConvolutionAxis {
  int64_t in = 1, out = 1, taps = 1, stride = 1, dilation = 1, low = 0;
};

/// A convolution of `images` pictures or one of its gradients; the last axis is
/// a row's.
struct ConvolutionShape {
  int64_t images = 1, channels = 0, outputs = 0, groups = 1;
  std::array<ConvolutionAxis, 3> axes;
};
enum class ConvolutionPass { Forward, BackwardInput, BackwardWeight };

/// `path` as in PipecConvPath (runtime/kernels/cpu/Kernels.h), by its name:
/// "direct", "product", "rows" or "winograd".
KernelWork convolutionWork(const ConvolutionShape &shape, ConvolutionPass pass,
                           const std::string &path, const ProductTile &tile);

/// Of kernelAmounts(), those of convolutions.
void addConvolutionAmounts(
    std::map<std::string, std::vector<std::string>> &amounts);

} // namespace pipec::plan
