//===- Convolutions.h - convolutions by cuDNN -------------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Driver.h"
#include "runtime/kernels/cpu/Kernels.h"

#include <functional>
#include <memory>
#include <string>

namespace pipec::cuda {

/// Convolutions as of Kernels.h, queued on one stream, in f32 without TF32 and
/// with algorithms that cuDNN calls deterministic; those of bf16, which are not
/// gradients of weights, add in f32 and round once; where cuDNN has none of
/// bf16 it has the same numbers as f32, and the sums are rounded here. Padding
/// is the same on both sides of an axis (the compiler refuses other
/// convolutions). Where operands are of bf16 no algorithm is taken that
/// transforms them (Winograd, FFT): it would round what it multiplies again. As
/// f32 they are transformed, in f32, where there is no other algorithm.
class Convolutions {
public:
  /// Queues `count` numbers of bf16 as f32 (`widens`), or the other way round.
  using Convert = std::function<void(bool widens, char *to, const char *from,
                                     int64_t count)>;

  Convolutions(Stream stream, Convert convert);
  ~Convolutions();

  /// `kind`: PipecConvKind. Failure(Unavailable): no library, or it has no
  /// algorithm for the shape.
  void convolve(const PipecConv &shape, int kind, const char *first,
                const char *second, char *result);

  /// By what such a convolution is done: "algorithm 1, math 0"; empty when none
  /// has been queued.
  std::string chosen(const PipecConv &shape, int kind) const;

  /// Of the device's memory that the algorithms work in.
  int64_t bytes() const;

private:
  struct Library;
  struct Plan;
  Plan &planOf(const PipecConv &shape, int kind);
  void describe(const PipecConv &shape, Plan &plan);
  void search(const PipecConv &shape, int kind, Plan &plan);
  void choose(const PipecConv &shape, Plan &plan);
  int queue(const PipecConv &shape, int kind, const Plan &plan,
            const char *first, const char *second, char *result);
  void convolveWidened(const PipecConv &shape, int kind, const char *first,
                       const char *second, char *result);

  Stream stream;
  Convert convert;
  std::unique_ptr<Library> library; ///< once it is needed
};

} // namespace pipec::cuda
