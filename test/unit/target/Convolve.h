//===- Convolve.h - a convolution by the CPU's kernels ----------*- C++ -*-===//
//
// For tests in which a processor does the work of a device, which convolves
// bf16 as well: added in f32, rounded once.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/Kernels.h"
#include "support/NarrowFloat.h"

#include <memory>
#include <vector>

namespace pipec {

/// `kind`: PIPEC_CONV_FORWARD, ...; operands as in Kernels.h.
inline void convolve(PipecConv shape, int32_t kind, const void *first,
                     const void *second, void *result) {
  if (shape.dtype == PIPEC_BF16) {
    int64_t x = shape.n * shape.c, y = shape.n * shape.o,
            w = shape.o * shape.c / shape.groups;
    for (int i = 0; i < shape.spatial_rank; ++i)
      x *= shape.in[i], y *= shape.out[i], w *= shape.kernel[i];
    const bool isForward = kind == PIPEC_CONV_FORWARD;
    auto widened = [](const void *from, int64_t count) {
      std::vector<float> wide(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i)
        wide[static_cast<size_t>(i)] =
            fromBfloat(static_cast<const uint16_t *>(from)[i]);
      return wide;
    };
    std::vector<float> sums(static_cast<size_t>(isForward ? y : x));
    shape.dtype = PIPEC_F32;
    convolve(shape, kind, widened(first, isForward ? x : y).data(),
             widened(second, w).data(), sums.data());
    for (size_t i = 0; i < sums.size(); ++i)
      static_cast<uint16_t *>(result)[i] = toBfloat(sums[i]);
    return;
  }
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
