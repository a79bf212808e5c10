//===- Products.h - matrix products by cuBLASLt -----------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Driver.h"
#include "runtime/kernels/cpu/Kernels.h"

#include <cstdint>
#include <memory>

namespace pipec::cuda {

/// Products as of Kernels.h, queued on one stream. f32 is computed in f32 (no
/// TF32). The algorithm of a shape is the heuristic's first, looked for once:
/// the same bits for every repetition.
class Products {
public:
  explicit Products(Stream stream);
  ~Products();

  /// Failure(Unavailable): no library, or it has no algorithm for the shape.
  void multiply(const PipecMatmul &shape, const char *a, const char *b,
                char *c);

  /// What the library works in, on the device.
  static constexpr int64_t kWorkspaceBytes = int64_t(32) << 20;
  /// kWorkspaceBytes once something has been multiplied.
  int64_t bytes() const;

private:
  struct Library;
  struct Plan;
  struct Strided;
  const Plan &planOf(const Strided &shape, const char *a, const char *b,
                     const char *c);
  void strided(const Strided &shape, const char *a, const char *b, char *c,
               bool accumulate);

  Stream stream;
  std::unique_ptr<Library> library; ///< once it is needed
};

} // namespace pipec::cuda
