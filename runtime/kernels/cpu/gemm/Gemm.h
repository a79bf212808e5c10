//===- Gemm.h - blocked products of packed panels ---------------*- C++ -*-===//
//
// One engine for matrix products and convolutions: C (+)= A B, where A and B
// say how to pack a panel of themselves and C is a matrix or a sink of tiles.
// An element of C is a sum over blocks of at most kDepth steps of k
// (kShortDepth when the whole call is small), each block one chain of fused
// multiply-adds; neither depends on how rows and columns are shared among
// threads.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/level/MicroKernels.h"

#include <cstdint>

namespace pipec::cpu {

/// Asks the second-level cache for part `part` of `parts` of so many lines, of
/// `length` elements each, `ld` apart.
template <typename Element>
void prefetchLines(const Element *data, int64_t ld, int64_t lines,
                   int64_t length, int64_t part, int64_t parts) {
  constexpr int64_t perCacheLine = 64 / sizeof(Element);
  for (int64_t i = lines * part / parts; i < lines * (part + 1) / parts; ++i)
    for (int64_t j = 0; j < length; j += perCacheLine)
      __builtin_prefetch(data + i * ld + j, 0, 2);
}

/// An operand: lines (rows of A, columns of B) times k.
template <typename T> class PanelSource {
public:
  virtual ~PanelSource() = default;
  /// dst[(k - k0) * width + i] = element (first + i, k) for i < count and k in
  /// [k0, k0 + kc); 0 for count <= i < width.
  virtual void pack(T *dst, int64_t width, int64_t first, int64_t count,
                    int64_t k0, int64_t kc) const = 0;
  /// As the left operand: where element (first, k0) lies when lines are `ld`
  /// apart and contiguous along k, so that it need not be packed; else null.
  virtual const Part<T> *inPlace(int64_t first, int64_t k0, int64_t &ld) const {
    return nullptr;
  }
  /// As the right operand: where element (first, k0) lies when `width` lines
  /// are neighbours and steps of k are `stride` apart, so that the panel need
  /// not be packed; else null.
  virtual const T *panelInPlace(int64_t first, int64_t count, int64_t width,
                                int64_t k0, int64_t &stride) const {
    return nullptr;
  }
  /// Lines [first, last) as panels of the tile's rows, kc * rows apart.
  virtual void packBand(T *dst, int64_t first, int64_t last, int64_t k0,
                        int64_t kc) const {
    const int64_t width = microKernels<T>().rows;
    for (int64_t i = first; i < last; i += width)
      pack(dst + (i - first) * kc, width, i,
           i + width < last ? width : last - i, k0, kc);
  }
  /// Asks the memory for part `part` of `parts` of what such a call will read.
  virtual void prefetch(int64_t first, int64_t count, int64_t k0, int64_t kc,
                        int64_t part, int64_t parts) const {}
};

/// A result that is not one matrix in memory.
template <typename T> class TileSink {
public:
  virtual ~TileSink() = default;
  /// Element (row + i, column + j) = or += tile[i * ld + j], i < m, j < n.
  virtual void put(int64_t row, int64_t m, int64_t column, int64_t n,
                   const T *tile, int64_t ld, bool add) const = 0;
  /// Where the tile lies when it is a matrix with row stride `ld`, else null.
  virtual T *inPlace(int64_t row, int64_t column, int64_t n,
                     int64_t &ld) const = 0;
};

/// A matrix in memory, as an operand: contiguous along k, lines `ld` apart, or
/// contiguous along the lines, steps of k `ld` apart. In the second case panels
/// of the right operand are read where they are if `direct`: no packing, but
/// worse locality; for matrices read once or twice.
template <typename T> class MatrixSource final : public PanelSource<T> {
public:
  MatrixSource(const T *data, int64_t ld, bool contiguousK, bool direct = false)
      : data(data), ld(ld), contiguousK(contiguousK), direct(direct) {}
  void pack(T *dst, int64_t width, int64_t first, int64_t count, int64_t k0,
            int64_t kc) const override {
    if (contiguousK)
      microKernels<T>().packLines(dst, width, data + first * ld + k0, ld, count,
                                  kc);
    else
      microKernels<T>().packRows(dst, width, data + k0 * ld + first, ld, count,
                                 kc);
  }

  const T *inPlace(int64_t first, int64_t k0, int64_t &stride) const override {
    stride = ld;
    return contiguousK && ld ? data + first * ld + k0 : nullptr;
  }
  const T *panelInPlace(int64_t first, int64_t count, int64_t width, int64_t k0,
                        int64_t &stride) const override {
    stride = ld;
    return direct && !contiguousK && count == width ? data + k0 * ld + first
                                                    : nullptr;
  }
  void packBand(T *dst, int64_t first, int64_t last, int64_t k0,
                int64_t kc) const override {
    if (contiguousK)
      return PanelSource<T>::packBand(dst, first, last, k0, kc);
    const int64_t width = microKernels<T>().rows;
    const int64_t panels = (last - first) / width, whole = panels * width;
    microKernels<T>().packBand(dst, panels, data + k0 * ld + first, ld, kc);
    if (first + whole < last)
      pack(dst + whole * kc, width, first + whole, last - first - whole, k0,
           kc);
  }
  void prefetch(int64_t first, int64_t count, int64_t k0, int64_t kc,
                int64_t part, int64_t parts) const override {
    if (contiguousK)
      prefetchLines(data + first * ld + k0, ld, count, kc, part, parts);
    else
      prefetchLines(data + k0 * ld + first, ld, kc, count, part, parts);
  }

private:
  const T *data;
  int64_t ld;
  bool contiguousK, direct;
};

/// A matrix in memory, as the result.
template <typename T> class MatrixSink final : public TileSink<T> {
public:
  MatrixSink(T *data, int64_t ld) : data(data), ld(ld) {}
  void put(int64_t, int64_t, int64_t, int64_t, const T *, int64_t,
           bool) const override {} // always in place
  T *inPlace(int64_t row, int64_t column, int64_t,
             int64_t &stride) const override {
    stride = ld;
    return data + row * ld + column;
  }

private:
  T *data;
  int64_t ld;
};

/// Where T is a pair, k counts pairs.
template <typename T> struct Gemm {
  int64_t m, n, k;
  const PanelSource<T> &a, &b;
  const TileSink<Sum<T>> &c;
  bool add;
  /// Blocks of k do not cross multiples of this (0: they may).
  int64_t period = 0;
  /// Multiply-adds of the call that this product is a part of (0: m * n * k).
  int64_t work = 0;

  /// On the team.
  void run() const;
  /// Rows [m0, m1) (m0 a multiple of the tile's rows), columns [n0, n1), all of
  /// k, on the calling thread. k = 0 writes zeros unless `add`.
  void share(int64_t m0, int64_t m1, int64_t n0, int64_t n1) const;
};

/// Largest number of k steps (of the matrices, not of pairs) in one chain of
/// multiply-adds.
constexpr int64_t kDepth = 384;

/// Calls of at most this many multiply-adds sum k in short blocks: they take no
/// time anyhow, and a sum of short sums is rounded less than a long chain.
constexpr int64_t kSmallWork = int64_t(1) << 22, kShortDepth = 16;

/// Bytes of buffers that each thread keeps from its first product on.
int64_t threadWorkspaceBytes();

/// A buffer of the calling thread for what sources make while they pack, and
/// for convolutions: at least `kScratchElements` doubles, 64-byte aligned.
constexpr int64_t kScratchElements = 16384;
template <typename T> T *threadScratch();

} // namespace pipec::cpu
