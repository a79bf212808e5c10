//===- CallNames.h - what calls of libraries are called ---------*- C++ -*-===//
//
// In lists of what a task will call, of how long that took, and in errors.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/StageAbi.h"
#include "runtime/kernels/cpu/Kernels.h"

#include <string>

namespace pipec {

inline std::string callName(const PipecMatmul &shape) {
  int64_t count = 1;
  for (int32_t i = 0; i < shape.batch_rank; ++i)
    count *= shape.batch[i];
  return std::string("matmul ") +
         (shape.dtype == PIPEC_BF16  ? "bf16 "
          : shape.dtype == PIPEC_F64 ? "f64 "
                                     : "f32 ") +
         std::to_string(count) + " x " + std::to_string(shape.m) + " x " +
         std::to_string(shape.k) + " x " + std::to_string(shape.n) +
         (shape.transpose_a ? " a'" : "") + (shape.transpose_b ? " b'" : "");
}

inline std::string callName(const PipecConv &shape, int32_t kind) {
  std::string name = kind == PIPEC_CONV_FORWARD          ? "conv"
                     : kind == PIPEC_CONV_BACKWARD_INPUT ? "conv dx"
                                                         : "conv dw";
  name += " of " + std::to_string(shape.n) + " x " + std::to_string(shape.c);
  auto sizes = [&](const char *before, const int64_t *list) {
    for (int32_t i = 0; i < shape.spatial_rank; ++i)
      name += (i ? " x " : before) + std::to_string(list[i]);
  };
  sizes(" x ", shape.in);
  name += " to " + std::to_string(shape.o);
  sizes(" by ", shape.kernel);
  sizes(" stride ", shape.stride);
  return name;
}

inline std::string callName(const PipecAttention &shape) {
  std::string name =
      shape.gradient ? "attention gradient of " : "attention of ";
  name += std::to_string(shape.batch) + " x " + std::to_string(shape.heads) +
          " x " + std::to_string(shape.queries) + " x " +
          std::to_string(shape.keys) + " x " + std::to_string(shape.size);
  return name + (shape.causal ? " causal" : "");
}

} // namespace pipec
