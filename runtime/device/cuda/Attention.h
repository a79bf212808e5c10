//===- Attention.h - attention by cuDNN -------------------------*- C++ -*-===//
#pragma once

#include "runtime/StageAbi.h"
#include "runtime/device/cuda/Driver.h"

#include <memory>

namespace pipec::cuda {

/// Attention of bf16 and its gradients (StageAbi.h), queued on one stream, in
/// ways that cuDNN calls deterministic. Only on Hopper, where it is faster than
/// the stage's own kernels: docs/gpu.md has the times.
/// PIPEC_CUDNN_ATTENTION=off in the environment leaves all to those.
class Attention {
public:
  /// `major`: of the device's compute capability.
  Attention(Stream stream, int major);
  ~Attention();

  /// Whether cuDNN is there and runs it. Gradients: only if forward of such
  /// sizes is run by it as well.
  bool attends(const PipecAttention &shape);
  /// Queues it. Failure(Unavailable): cuDNN has failed.
  void attend(const PipecAttention &shape, char *const *at);

  /// How many kinds have been queued.
  int64_t kinds() const;
  /// Of the device's memory that cuDNN works in.
  int64_t bytes() const;

private:
  struct Library;
  struct Planned;
  Planned &plannedOf(const PipecAttention &shape);

  Stream stream;
  bool isWanted;
  std::unique_ptr<Library> library; ///< once it is needed
};

} // namespace pipec::cuda
