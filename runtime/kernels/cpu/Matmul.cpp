//===- Matmul.cpp - strided batched matrix products -----------------------===//

#include "runtime/kernels/cpu/Parallel.h"
#include "runtime/kernels/cpu/gemm/Gemm.h"
#include "runtime/kernels/cpu/gemm/PairSource.h"
#include "runtime/kernels/cpu/gemm/WideningSource.h"

#include <algorithm>
#include <type_traits>

namespace pipec::cpu {
namespace {

/// The batch loops, apart: those that select a matrix of c, and those that sum
/// into it (stride_c = 0).
struct Batch {
  struct Loop {
    int64_t size, a, b, c;
  };
  Loop select[4], sum[4];
  int selects = 0, sums = 0;
  int64_t matrices = 1, terms = 1;

  explicit Batch(const PipecMatmul &d) {
    for (int i = 0; i < d.batch_rank; ++i) {
      const Loop loop{d.batch[i], d.stride_a[i], d.stride_b[i], d.stride_c[i]};
      if (loop.c == 0 && loop.size != 1) {
        sum[sums++] = loop;
        terms *= loop.size;
      } else {
        select[selects++] = loop;
        matrices *= loop.size;
      }
    }
  }
};

struct Offset {
  int64_t a = 0, b = 0, c = 0;
};

Offset offsetOf(const Batch::Loop *loops, int count, int64_t position) {
  Offset at;
  for (int i = count - 1; i >= 0; --i) {
    const int64_t index = position % loops[i].size;
    position /= loops[i].size;
    at.a += index * loops[i].a;
    at.b += index * loops[i].b;
    at.c += index * loops[i].c;
  }
  return at;
}

/// An operand of a product of T, in memory of Element; with so few lines on the
/// other side that packing would cost more than reading where it is, `direct`.
template <typename T, typename Element>
auto source(const Element *data, int64_t ld, bool contiguousK, int64_t k,
            bool direct) {
  if constexpr (std::is_same_v<T, Element>)
    return MatrixSource<T>(data, ld, contiguousK, direct);
  else if constexpr (std::is_same_v<T, Pair>)
    return PairSource(data, ld, contiguousK, k);
  else
    return WideningSource(data, ld, contiguousK);
}

template <typename T, typename Element = T> struct Product {
  const PipecMatmul &d;
  const Element *a, *b;
  Sum<T> *c;
  Batch batch = Batch(d);

  Product(const PipecMatmul &d, const void *a, const void *b, void *c)
      : d(d), a(static_cast<const Element *>(a)),
        b(static_cast<const Element *>(b)), c(static_cast<Sum<T> *>(c)) {}

  /// Calls body(gemm) for every term of matrix `matrix` of c, in order.
  template <typename Body>
  void forEachTerm(int64_t matrix, const Body &body) const {
    const Offset at = offsetOf(batch.select, batch.selects, matrix);
    const MatrixSink<Sum<T>> sink(c + at.c, d.ldc);
    for (int64_t term = 0; term < std::max<int64_t>(batch.terms, 1); ++term) {
      const Offset in = offsetOf(batch.sum, batch.terms ? batch.sums : 0, term);
      const auto left =
          source<T>(a + at.a + in.a, d.lda, !d.transpose_a, d.k, false);
      const auto right =
          source<T>(b + at.b + in.b, d.ldb, d.transpose_b, d.k, d.m <= 16);
      // No terms at all: a product of depth 0.
      const int64_t steps = (d.k + kParts<T> - 1) / kParts<T>;
      Gemm<T> g{d.m,   d.n,  batch.terms ? steps : 0, left,
                right, sink, d.accumulate || term > 0};
      g.work = batch.matrices * d.m * d.n * d.k;
      body(g);
    }
  }

  void run() const {
    if (d.m <= 0 || d.n <= 0 || batch.matrices <= 0)
      return;
    if (batch.matrices == 1)
      return forEachTerm(0, [](const Gemm<T> &g) { g.run(); });
    runBatch();
  }

  /// All rows of all matrices in one line, cut evenly.
  void runBatch() const {
    const int64_t tile = microKernels<T>().rows;
    const int64_t bands = (d.m - 1) / tile + 1;
    const double work = double(tile) * double(d.n) * double(d.k + 1);
    const int64_t grain = int64_t(65536 / work) + 1;
    parallelRanges(batch.matrices * bands, grain, [&](int64_t lo, int64_t hi) {
      while (lo < hi) {
        const int64_t first = lo % bands;
        const int64_t count = std::min(bands - first, hi - lo);
        forEachTerm(lo / bands, [&](const Gemm<T> &g) {
          g.share(first * tile, std::min(d.m, (first + count) * tile), 0, d.n);
        });
        lo += count;
      }
    });
  }
};

} // namespace
} // namespace pipec::cpu

extern "C" void pipec_matmul(const PipecMatmul *d, const void *a, const void *b,
                             void *c) {
  using namespace pipec::cpu;
  if (d->dtype == PIPEC_F64)
    Product<double>(*d, a, b, c).run();
  else if (d->dtype == PIPEC_BF16 && multipliesPairs())
    Product<Pair, uint16_t>(*d, a, b, c).run();
  else if (d->dtype == PIPEC_BF16)
    Product<float, uint16_t>(*d, a, b, c).run();
  else
    Product<float>(*d, a, b, c).run();
}

extern "C" void pipec_product_tile(int32_t *rows, int32_t *lanes,
                                   int32_t *vectors) {
  const pipec::cpu::MicroKernels<float> &u = pipec::cpu::microKernels<float>();
  *rows = u.rows, *lanes = u.lanes, *vectors = u.vectors;
}
