//===- WinogradTiles.h - the transforms of F(2x2, 3x3) ----------*- C++ -*-===//
//
// Winograd's minimal filtering (Lavin & Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2015, section 4.1): a 2 x 2 tile of a 3 x 3
// convolution is A^T [(G g G^T) . (B^T d B)] A, 16 products instead of 36.
//
//        | 1  0 -1  0 |        | 1    0    0  |
//  B^T = | 0  1  1  0 |   G =  | 1/2  1/2 1/2 |   A^T = | 1 1  1  0 |
//        | 0 -1  1  0 |        | 1/2 -1/2 1/2 |         | 0 1 -1 -1 |
//        | 0  1  0 -1 |        | 0    0    1  |
//
// Every function works on 16 channels at once: a "strip" is rows of positions
// of 16 floats, and the 16 frequencies of a tile are vectors `step` floats
// apart. Compiled once per processor level, like MicroKernels.cpp; no
// fused multiply-adds, so that all levels agree.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>

namespace pipec::cpu {

struct WinogradTiles {
  /// Tile t of `tiles` reads the 4 x 4 positions from strip row 0, column 2 t
  /// (rows `row` floats apart) and writes B^T d B at to + t * tileStep.
  void (*input)(const float *strip, int64_t row, int64_t tiles, float *to,
                int64_t tileStep, int64_t step);
  /// The transpose of `output`: 2 x 2 positions to A d A^T.
  void (*gradient)(const float *strip, int64_t row, int64_t tiles, float *to,
                   int64_t tileStep, int64_t step);
  /// A^T m A to 2 x 2 positions of the strip.
  void (*output)(const float *from, int64_t tileStep, int64_t step,
                 int64_t tiles, float *strip, int64_t row);
  /// G g G^T of 9 vectors, one per tap (`turned`: in reverse order).
  void (*weights)(const float *taps, bool turned, float *to, int64_t step);
  /// The transpose of `weights`: G^T u G to 9 vectors.
  void (*weightGradient)(const float *from, int64_t step, float *taps);
};

/// The transforms for this processor (see microKernels).
const WinogradTiles &winogradTiles();

} // namespace pipec::cpu
