//===- Convolutions.h - convolutions by cuDNN -------------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Driver.h"
#include "runtime/kernels/cpu/Kernels.h"

#include <memory>

namespace pipec::cuda {

/// Convolutions as of Kernels.h, queued on one stream, in f32 without TF32 and
/// with algorithms that cuDNN calls deterministic; those of bf16, which are not
/// gradients of weights, add in f32 and round once. Padding is the same on both
/// sides of an axis (the compiler refuses other convolutions).
class Convolutions {
public:
  explicit Convolutions(Stream stream);
  ~Convolutions();

  /// `kind`: PipecConvKind. Failure(Unavailable): no library, or it has no
  /// algorithm for the shape.
  void convolve(const PipecConv &shape, int kind, const char *first,
                const char *second, char *result);

  /// Of the device's memory that the algorithms work in.
  int64_t bytes() const;

private:
  struct Library;
  struct Plan;
  const Plan &planOf(const PipecConv &shape, int kind);

  Stream stream;
  std::unique_ptr<Library> library; ///< once it is needed
};

} // namespace pipec::cuda
