//===- MicroKernels.h - what a processor level gives the products -*- C++ -*-=//
//
// The innermost loops of matrix products and convolutions. MicroKernels.cpp is
// compiled once per processor level; which one runs is chosen at first use.
// All levels with fused multiply-add (x86-64-v3, x86-64-v4) give the same bits:
// an element of the result is one chain of FMAs over k, whatever the register
// tile around it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/level/Element.h"

#include <cstdint>

namespace pipec::cpu {

/// A register tile is `rows` x `columns`; operands are packed in panels:
///   A: a[k * rows + i]                 i < rows
///   B: b[k * stride + j]               j < vectors * lanes <= columns
/// Strides in packed panels count elements, those in matrices their parts: with
/// pairs a step of k is two of the matrix's.
template <typename T> struct MicroKernels {
  int rows;
  int lanes;
  int vectors; ///< of B per tile
  int columns; ///< lanes * vectors

  /// c[i * ldc + j] = or += sum over k < kc of A(i, k) * b[k * stride + j], for
  /// i < m <= rows and j < n <= columns. A is a packed panel when lda is 0,
  /// else rows in place: A(i, k) = a[i * lda + k]. B must be readable up to the
  /// next multiple of `lanes`.
  void (*tile)(int64_t m, int64_t n, int64_t kc, const Part<T> *a, int64_t lda,
               const T *b, int64_t stride, Sum<T> *c, int64_t ldc, bool add);

  /// dst[k * width + i] = src[i * ld + k] for i < count, 0 for count <= i <
  /// width; k < kc. For sources that are contiguous along k.
  void (*packLines)(T *dst, int64_t width, const Part<T> *src, int64_t ld,
                    int64_t count, int64_t kc);

  /// dst[k * width + i] = src[k * ld + i], else as above. For sources that are
  /// contiguous along the panel.
  void (*packRows)(T *dst, int64_t width, const Part<T> *src, int64_t ld,
                   int64_t count, int64_t kc);

  /// `panels` full panels of `rows` lines, kc * rows elements apart, from a
  /// source as in packRows.
  void (*packBand)(T *dst, int64_t panels, const Part<T> *src, int64_t ld,
                   int64_t kc);

  /// dst[c * ldDst + r] = src[r * ldSrc + c] for r < rows, c < columns. Not of
  /// pairs.
  void (*transpose)(T *dst, int64_t ldDst, const T *src, int64_t ldSrc,
                    int64_t rows, int64_t columns);

  /// dst[i] = src[i] of bf16, for i < n. Single precision alone.
  void (*widen)(T *dst, const uint16_t *src, int64_t n);
};

/// The kernels of the best level this processor has. The environment variable
/// PIPEC_KERNELS=v4|v3|baseline lowers it (for tests; v4: without instructions
/// for bf16).
template <typename T> const MicroKernels<T> &microKernels();

/// Whether it multiplies pairs (AVX512-BF16); else there are no kernels of
/// them.
bool multipliesPairs();

} // namespace pipec::cpu
