//===- Matmul.cpp - strided batched matrix products -----------------------===//

#include "runtime/kernels/cpu/Parallel.h"

#include <dnnl.h>

#include <algorithm>

namespace {

struct Problem {
  bool ta, tb;
  int64_t m, n, k, lda, ldb, ldc;
};

/// Rows [lo, hi) of c (+)= op(a) op(b), every element one sum in ascending k.
template <typename T>
void plainRows(const Problem &p, const T *a, const T *b, T *c, bool add,
               int64_t lo, int64_t hi) {
  for (int64_t i = lo; i < hi; ++i) {
    T *row = c + i * p.ldc;
    if (!add)
      std::fill_n(row, p.n, T(0));
    for (int64_t q = 0; q < p.k; ++q) {
      const T f = p.ta ? a[q * p.lda + i] : a[i * p.lda + q];
      for (int64_t j = 0; j < p.n; ++j)
        row[j] += f * (p.tb ? b[j * p.ldb + q] : b[q * p.ldb + j]);
    }
  }
}

void product(const Problem &p, const double *a, const double *b, double *c,
             bool add) {
  const int64_t grain = 16384 / (p.n * p.k + 1) + 1;
  pipec::cpu::parallelRanges(p.m, grain, [&](int64_t lo, int64_t hi) {
    plainRows(p, a, b, c, add, lo, hi);
  });
}

void product(const Problem &p, const float *a, const float *b, float *c,
             bool add) {
  if (p.k == 0)
    return plainRows(p, a, b, c, add, 0, p.m);
  dnnl_sgemm(p.ta ? 'T' : 'N', p.tb ? 'T' : 'N', p.m, p.n, p.k, 1.0f, a, p.lda,
             b, p.ldb, add ? 1.0f : 0.0f, c, p.ldc);
}

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

template <typename T>
void matmul(const PipecMatmul &d, const T *a, const T *b, T *c) {
  const Problem p{d.transpose_a != 0,
                  d.transpose_b != 0,
                  d.m,
                  d.n,
                  d.k,
                  d.lda,
                  d.ldb,
                  d.ldc};
  const Batch batch(d);
  const auto one = [&](int64_t matrix) {
    const Offset at = offsetOf(batch.select, batch.selects, matrix);
    if (batch.terms == 0 && !d.accumulate)
      plainRows({p.ta, p.tb, p.m, p.n, 0, p.lda, p.ldb, p.ldc}, a, b, c + at.c,
                false, 0, p.m);
    for (int64_t term = 0; term < batch.terms; ++term) {
      const Offset in = offsetOf(batch.sum, batch.sums, term);
      product(p, a + at.a + in.a, b + at.b + in.b, c + at.c,
              d.accumulate || term > 0);
    }
  };
  if (d.m <= 0 || d.n <= 0 || batch.matrices <= 0)
    return;
  // Enough matrices: one thread each. By shape, so that bits are fixed.
  if (batch.matrices >= 8)
    return pipec::cpu::parallelFor(batch.matrices, 1, one);
  for (int64_t matrix = 0; matrix < batch.matrices; ++matrix)
    one(matrix);
}

} // namespace

extern "C" void pipec_matmul(const PipecMatmul *d, const void *a, const void *b,
                             void *c) {
  if (d->dtype == PIPEC_F64)
    return matmul(*d, static_cast<const double *>(a),
                  static_cast<const double *>(b), static_cast<double *>(c));
  matmul(*d, static_cast<const float *>(a), static_cast<const float *>(b),
         static_cast<float *>(c));
}
