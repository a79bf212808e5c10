//===- Tile.h - the register tile of products, for one level ----*- C++ -*-===//
//
// For files that are compiled once per processor level; see Vector.h.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/level/Vector.h"

namespace pipec::cpu {
namespace {

#ifdef __AVX512F__
constexpr int kRows = 8, kVectors = 3;
#elif defined(__AVX2__)
constexpr int kRows = 4, kVectors = 3;
#else
constexpr int kRows = 4, kVectors = 2;
#endif

template <typename T, int M, int N, bool Packed>
void tile(int64_t n, int64_t kc, const Part<T> *a, int64_t lda, const T *b,
          int64_t stride, Sum<T> *c, int64_t ldc, bool add) {
  constexpr int lanes = kLanes<T>;
  // The tile of C is needed when k is through: ask for it now.
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
      __builtin_prefetch(c + i * ldc + j * lanes, 1);
  Vector<Sum<T>> sum[M][N] = {};
  constexpr int64_t step = (Packed ? kRows : 1) * kParts<T>;
  for (int64_t k = 0; k < kc; ++k, a += step, b += stride) {
    Vector<T> row[N];
#pragma unroll
    for (int j = 0; j < N; ++j)
      row[j] = load(b + j * lanes);
#pragma unroll
    for (int i = 0; i < M; ++i) {
      T factor;
      __builtin_memcpy(&factor, a + (Packed ? i * kParts<T> : i * lda),
                       sizeof(T));
#pragma unroll
      for (int j = 0; j < N; ++j)
        sum[i][j] = multiplyAdd<T>(splat(factor), row[j], sum[i][j]);
    }
  }
  if (n == N * lanes) {
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        Sum<T> *to = c + i * ldc + j * lanes;
        store<Sum<T>>(to, add ? load(to) + sum[i][j] : sum[i][j]);
      }
    return;
  }
  Sum<T> edge[M][N * lanes];
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
      store<Sum<T>>(edge[i] + j * lanes, sum[i][j]);
  for (int i = 0; i < M; ++i)
    for (int64_t j = 0; j < n; ++j)
      c[i * ldc + j] = add ? c[i * ldc + j] + edge[i][j] : edge[i][j];
}

template <typename T>
using TileFunction = void (*)(int64_t, int64_t, const Part<T> *, int64_t,
                              const T *, int64_t, Sum<T> *, int64_t, bool);

#define PIPEC_TILE_ROW(M)                                                      \
  {tile<T, M, 1, Packed>, tile<T, M, 2, Packed>, tile<T, M, 3, Packed>}
template <typename T, bool Packed>
constexpr TileFunction<T> kTiles[8][3] = {
    PIPEC_TILE_ROW(1), PIPEC_TILE_ROW(2), PIPEC_TILE_ROW(3), PIPEC_TILE_ROW(4),
#ifdef __AVX512F__
    PIPEC_TILE_ROW(5), PIPEC_TILE_ROW(6), PIPEC_TILE_ROW(7), PIPEC_TILE_ROW(8),
#endif
};
#undef PIPEC_TILE_ROW

template <typename T>
void anyTile(int64_t m, int64_t n, int64_t kc, const Part<T> *a, int64_t lda,
             const T *b, int64_t stride, Sum<T> *c, int64_t ldc, bool add) {
  const int64_t vectors = (n - 1) / kLanes<T>;
  (lda ? kTiles<T, false> : kTiles<T, true>)[m - 1][vectors](
      n, kc, a, lda, b, stride, c, ldc, add);
}

} // namespace
} // namespace pipec::cpu
