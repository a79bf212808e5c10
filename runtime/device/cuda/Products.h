//===- Products.h - matrix products by cuBLASLt -----------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/CublasLt.h"
#include "runtime/device/cuda/Driver.h"
#include "runtime/kernels/cpu/Kernels.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace pipec::cuda {

/// Products as of Kernels.h, queued on one stream. f32 is computed in f32 (no
/// TF32). The algorithm of a shape is the heuristic's first that the library
/// does not refuse, looked for once: the same bits for every repetition, and
/// with a bias, which is added to the sum of f32 before that is rounded.
/// PIPEC_EPILOGUES=off in the environment adds none.
class Products {
public:
  /// `wait` waits for the stream.
  Products(Stream stream, std::function<void()> wait);
  ~Products();

  /// Failure(Unavailable): no library, or it has no algorithm for the shape.
  void multiply(const PipecMatmul &shape, const char *a, const char *b,
                char *c);

  /// Whether the algorithm that a product has adds a bias as well, a number for
  /// each column; c = a b + bias where it does. What is in c is lost.
  bool addsBias(const PipecMatmul &shape, const char *a, const char *b,
                const char *bias, char *c);
  /// False, and nothing done, where it turns out not to run it.
  bool multiplyBiased(const PipecMatmul &shape, const char *a, const char *b,
                      const char *bias, char *c);

  /// Kinds of products (shape, type, alignment) whose bias the library adds,
  /// and those with a bias that it has refused to add.
  struct Biases {
    int64_t added = 0, refused = 0;
  };
  const Biases &biases() const { return biasKinds; }
  /// Kinds for which another algorithm than the library's first choice is run,
  /// with the same bits, as it was faster when it was tried.
  int64_t tuned() const { return tunedKinds; }

  /// An index over matrices.
  struct Loop {
    int64_t count, a, b, c;
  };

  /// What the library works in, on the device.
  static constexpr int64_t kWorkspaceBytes = int64_t(32) << 20;
  /// kWorkspaceBytes once something has been multiplied.
  int64_t bytes() const;

private:
  struct Library;
  struct Plan;
  struct Strided;
  using Found = cublas::Found;
  static Strided stridedOf(const PipecMatmul &shape, const Loop &own);
  void open();
  void describe(const Strided &shape, Plan &plan);
  Plan &planOf(const Strided &shape, const char *a, const char *b, char *c,
               bool accumulate);
  Plan &biasedPlanOf(const Strided &shape, const char *a, const char *b,
                     const char *bias, char *c);
  bool takes(const Plan &plan, const Found &candidate) const;
  int queue(const Strided &shape, const Plan &plan, const Found &algorithm,
            const char *a, const char *b, char *c, bool accumulate);
  void chooseFastest(const Strided &shape, Plan &plan, const char *a,
                     const char *b, char *c);
  void strided(const Strided &shape, const char *a, const char *b, char *c,
               bool accumulate);

  Stream stream;
  std::function<void()> wait;
  std::unique_ptr<Library> library; ///< once it is needed
  bool addsBiases;
  int64_t leastTuned; ///< operations of a product
  int64_t tunedKinds = 0;
  Biases biasKinds;
};

} // namespace pipec::cuda
