//===- Convolve.h - a convolution by the CPU's kernels ----------*- C++ -*-===//
//
// For tests in which a processor does the work of a device.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/Kernels.h"

#include <memory>
#include <vector>

namespace pipec {

/// `kind`: PIPEC_CONV_FORWARD, ...; operands as in Kernels.h.
inline void convolve(PipecConv shape, int32_t kind, const void *first,
                     const void *second, void *result) {
  constexpr size_t kAlignment = 64;
  const auto bytes =
      static_cast<size_t>(pipec_conv_scratch_bytes(&shape, kind));
  size_t space = bytes + kAlignment;
  std::vector<char> scratch(space);
  void *at = scratch.data();
  std::align(kAlignment, bytes, at, space);
  auto *run = kind == PIPEC_CONV_FORWARD          ? pipec_conv_forward
              : kind == PIPEC_CONV_BACKWARD_INPUT ? pipec_conv_backward_input
                                                  : pipec_conv_backward_weight;
  run(&shape, first, second, result, static_cast<char *>(at));
  pipec_release_conv(&shape);
}

} // namespace pipec
