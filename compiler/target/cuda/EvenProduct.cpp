//===- EvenProduct.cpp - products over rows with gaps ---------------------===//
#include "compiler/target/cuda/EvenProduct.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace pipec;
using namespace pipec::cuda;

/// Numbers of the narrowest type that fill 16 bytes.
constexpr int64_t kEven = 8;

EvenProduct::EvenProduct(const PipecMatmul &given, const fusion::Buffer &a,
                         const fusion::Buffer &b, const fusion::Buffer &c)
    : shape(given) {
  if (shape.batch_rank != 0)
    return;
  auto isWhole = [](const fusion::Buffer &buffer, int64_t row, int64_t pitch) {
    return buffer.pitch && buffer.row == row && buffer.pitch == pitch;
  };
  /// As far as both gaps go.
  auto evenSize = [](const fusion::Buffer &x, const fusion::Buffer &y,
                     int64_t size) {
    return std::max(size, static_cast<int64_t>(llvm::alignDown(
                              std::min(x.pitch, y.pitch), kEven)));
  };
  if (!shape.transpose_b && isWhole(b, shape.n, shape.ldb) &&
      isWhole(c, shape.n, shape.ldc) && !shape.accumulate)
    shape.n = evenSize(b, c, shape.n);
  if (!shape.transpose_a && shape.transpose_b &&
      isWhole(a, shape.k, shape.lda) && isWhole(b, shape.k, shape.ldb)) {
    const int64_t even = evenSize(a, b, shape.k);
    clearsGaps = even != shape.k;
    shape.k = even;
  }
}
