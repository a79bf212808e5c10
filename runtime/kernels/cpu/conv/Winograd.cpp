//===- Winograd.cpp - 3 x 3 convolution with 16/36 of the products --------===//
//
// Tiles go in chunks of whole rows of tiles. A chunk is worked on in three
// steps:
//   1. transform the input tiles:    v[f][tile][channel], frequencies f < 16
//   2. multiply per frequency:       m[f][tile][o] = v[f] u[f]
//   3. transform back and store.
// Channels are innermost, so that transforms use whole vectors whatever the
// image size, and so that the products read both operands where they lie.
// The weight gradient transforms both images and sums v[f]^T d[f] over chunks.
//
// With many chunks, each belongs to one of a few slots, which have memory of
// their own and run side by side; with few, all threads share each step.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/cpu/conv/Winograd.h"
#include "runtime/kernels/cpu/Parallel.h"
#include "runtime/kernels/cpu/gemm/Gemm.h"
#include "runtime/kernels/cpu/level/WinogradTiles.h"

#include <cstring>

namespace pipec::cpu {
namespace {

constexpr int64_t kFrequencies = 16, kLanes = kChannelBlock;

/// Bytes of transformed tiles that a chunk aims at (they should stay in the
/// second-level caches), and the fewest tiles that pay for reading the weights.
constexpr int64_t kChunkBytes = 1024 << 10, kChunkTiles = 192;

/// Slots when there are at least as many chunks, and the bytes of transformed
/// weights up to which each slot of a weight gradient has its own.
constexpr int64_t kSlots = 8, kSlotWeightBytes = 512 << 10;

/// A convolution from `from` to `to` with padding lo, in tiles of `to`.
struct Tiling {
  int64_t images, lo[2];
  struct Side {
    Layout layout;
    int64_t height, width, padded; ///< channels in whole vectors
  } from, to;
  int64_t across, rows, rowsPerImage; ///< tiles in a row, rows of tiles
  int64_t chunkRows, chunks, slots;
  bool sums; ///< weight gradient: every slot has weights

  Tiling(const ConvShape &s, PipecConvKind which)
      : images(s.n), sums(which == PIPEC_CONV_BACKWARD_WEIGHT) {
    const bool backward = which == PIPEC_CONV_BACKWARD_INPUT;
    const Side x{s.x, s.in[1], s.in[2], roundUp(s.c, kLanes)};
    const Side y{s.y, s.out[1], s.out[2], roundUp(s.o, kLanes)};
    from = backward ? y : x;
    to = backward ? x : y;
    for (int i = 0; i < 2; ++i)
      lo[i] = backward ? 2 - s.lo[i + 1] : s.lo[i + 1];
    across = (to.width + 1) / 2;
    rowsPerImage = (to.height + 1) / 2;
    rows = images * rowsPerImage;
    const int64_t tileBytes = kFrequencies * 4 * (from.padded + to.padded);
    const int64_t tiles = std::max(kChunkBytes / tileBytes, kChunkTiles);
    chunkRows =
        std::clamp<int64_t>(tiles / across, 1, std::max<int64_t>(rows, 1));
    chunks = rows ? (rows - 1) / chunkRows + 1 : 1;
    slots =
        chunks >= kSlots && (!sums || weightFloats() * 4 <= kSlotWeightBytes)
            ? kSlots
            : 1;
    chunks = roundUp(chunks, slots); // equal shares of about equal chunks
    chunkRows = (rows + chunks - 1) / chunks;
    chunks = rows ? (rows - 1) / chunkRows + 1 : 0; // none empty
    slots = std::min(slots, std::max<int64_t>(chunks, 1));
  }

  int64_t chunkTiles() const { return chunkRows * across; }
  /// Distance of frequencies; not a power of two.
  int64_t step(const Side &side) const {
    return chunkTiles() * side.padded + kLanes;
  }
  /// Weights: u[f][channel of `from`][channel of `to`].
  int64_t weightRow() const { return to.padded + kLanes; }
  int64_t weightStep() const {
    return from.layout.channels * weightRow() + kLanes;
  }
  /// Multiply-adds of all products.
  int64_t work() const {
    return kFrequencies * rows * across * from.padded * to.padded;
  }
  int64_t weightFloats() const { return kFrequencies * weightStep(); }
  /// Transformed tiles of one slot.
  int64_t slotFloats() const { return kFrequencies * (step(from) + step(to)); }
  int64_t scratchFloats() const {
    return weightFloats() * (sums ? slots : 1) + slotFloats() * slots;
  }

  /// Calls body(slot, tiles of the slot, first row of tiles, number of tiles)
  /// for every chunk; those of a slot in order. `scratch` holds the weights
  /// first.
  template <typename Body>
  void forEachChunk(float *scratch, const Body &body) const {
    float *tiles = scratch + weightFloats() * (sums ? slots : 1);
    parallelFor(slots, 1, [&](int64_t slot) {
      for (int64_t chunk = slot; chunk < chunks; chunk += slots) {
        const int64_t row = chunk * chunkRows;
        if (row < rows)
          body(slot, tiles + slot * slotFloats(), row,
               std::min(chunkRows, rows - row) * across);
      }
    });
  }
};

/// Strips are positions of an image side, 16 channels at a time, in the
/// thread's scratch: at most kStripTiles tiles of a row, and about kStripAim
/// floats.
constexpr int64_t kStripTiles = 64, kStripAim = 6144;
static_assert(4 * (2 * kStripTiles + 2) * kLanes <= kScratchElements);
static_assert(kStripAim <= kScratchElements);

/// Copies `rows` x `columns` positions from (y, x), zeros outside the image.
void loadStrip(const Tiling::Side &side, const float *data, int64_t image,
               int64_t block, int64_t y, int64_t x, int64_t rows,
               int64_t columns, float *strip) {
  const Layout &l = side.layout;
  const int64_t channel = block * kLanes;
  const int64_t channels = std::min(kLanes, l.channels - channel);
  const float *plane = data + l.at(image, channel);
  const int64_t first = std::clamp<int64_t>(-x, 0, columns);
  const int64_t last = std::clamp<int64_t>(side.width - x, first, columns);
  for (int64_t r = 0; r < rows; ++r, ++y, strip += columns * kLanes) {
    const bool inside = y >= 0 && y < side.height;
    const int64_t from = inside ? first : columns, to = inside ? last : columns;
    std::memset(strip, 0, from * kLanes * sizeof(float));
    const int64_t at = y * side.width + x + from;
    if (from < to && l.blocked)
      std::memcpy(strip + from * kLanes, plane + at * kLanes,
                  (to - from) * kLanes * sizeof(float));
    else if (from < to)
      microKernels<float>().packLines(strip + from * kLanes, kLanes, plane + at,
                                      l.plane, channels, to - from);
    std::memset(strip + to * kLanes, 0,
                (columns - to) * kLanes * sizeof(float));
  }
}

/// Stores the positions of a strip that lie in the image.
void storeStrip(const Tiling::Side &side, float *data, int64_t image,
                int64_t block, int64_t y, int64_t x, int64_t rows,
                int64_t columns, const float *strip) {
  const Layout &l = side.layout;
  const int64_t channel = block * kLanes;
  const int64_t channels = std::min(kLanes, l.channels - channel);
  float *plane = data + l.at(image, channel);
  const int64_t count = std::min(columns, side.width - x);
  for (int64_t r = 0; r < rows && y < side.height;
       ++r, ++y, strip += columns * kLanes) {
    const int64_t at = y * side.width + x;
    if (l.blocked)
      std::memcpy(plane + at * kLanes, strip, count * kLanes * sizeof(float));
    else
      microKernels<float>().transpose(plane + at, l.plane, strip, kLanes, count,
                                      channels);
  }
}

/// A few rows of tiles of one vector of channels of one image.
struct Group {
  int64_t block, image, row, rows, tile, tiles; ///< row: in the image
  int64_t first;                                ///< its first tile in the chunk
};

/// Calls body(group) for all tiles of a chunk that starts at `firstRow`. Groups
/// have several rows if the strip stays small (neighbouring rows share inputs).
template <typename Body>
void forEachGroup(const Tiling &t, const Tiling::Side &side, int64_t firstRow,
                  const Body &body) {
  const int64_t rows = std::min(t.chunkRows, t.rows - firstRow);
  const int64_t width = 2 * std::min(t.across, kStripTiles) + 2;
  const int64_t together =
      std::max<int64_t>(kStripAim / (2 * width * kLanes) - 1, 1);
  parallelRanges(side.padded / kLanes * rows, 1, [&](int64_t lo, int64_t hi) {
    while (lo < hi) {
      const int64_t r = lo % rows, row = (firstRow + r) % t.rowsPerImage;
      const int64_t count =
          std::min({together, hi - lo, rows - r, t.rowsPerImage - row});
      for (int64_t tile = 0; tile < t.across; tile += kStripTiles)
        body(Group{lo / rows, (firstRow + r) / t.rowsPerImage, row, count, tile,
                   std::min(kStripTiles, t.across - tile),
                   r * t.across + tile});
      lo += count;
    }
  });
}

void transformInput(const Tiling &t, const float *data, int64_t firstRow,
                    float *v) {
  forEachGroup(t, t.from, firstRow, [&](const Group &g) {
    float *strip = threadScratch<float>();
    const int64_t columns = 2 * g.tiles + 2;
    loadStrip(t.from, data, g.image, g.block, 2 * g.row - t.lo[0],
              2 * g.tile - t.lo[1], 2 * g.rows + 2, columns, strip);
    for (int64_t r = 0; r < g.rows; ++r)
      winogradTiles().input(
          strip + 2 * r * columns * kLanes, columns * kLanes, g.tiles,
          v + (g.first + r * t.across) * t.from.padded + g.block * kLanes,
          t.from.padded, t.step(t.from));
  });
}

void transformGradient(const Tiling &t, const float *data, int64_t firstRow,
                       float *d) {
  forEachGroup(t, t.to, firstRow, [&](const Group &g) {
    float *strip = threadScratch<float>();
    const int64_t columns = 2 * g.tiles;
    loadStrip(t.to, data, g.image, g.block, 2 * g.row, 2 * g.tile, 2 * g.rows,
              columns, strip);
    for (int64_t r = 0; r < g.rows; ++r)
      winogradTiles().gradient(
          strip + 2 * r * columns * kLanes, columns * kLanes, g.tiles,
          d + (g.first + r * t.across) * t.to.padded + g.block * kLanes,
          t.to.padded, t.step(t.to));
  });
}

void transformOutput(const Tiling &t, const float *m, int64_t firstRow,
                     float *data) {
  forEachGroup(t, t.to, firstRow, [&](const Group &g) {
    float *strip = threadScratch<float>();
    const int64_t columns = 2 * g.tiles;
    for (int64_t r = 0; r < g.rows; ++r)
      winogradTiles().output(
          m + (g.first + r * t.across) * t.to.padded + g.block * kLanes,
          t.to.padded, t.step(t.to), g.tiles, strip + 2 * r * columns * kLanes,
          columns * kLanes);
    storeStrip(t.to, data, g.image, g.block, 2 * g.row, 2 * g.tile, 2 * g.rows,
               columns, strip);
  });
}

/// u[f][c][o] from w[o][c][9].
void transformWeights(const Tiling &t, const float *w, float *u) {
  const int64_t channels = t.from.layout.channels;
  const int64_t outputs = t.to.layout.channels;
  parallelRanges(channels, kLanes, [&](int64_t c0, int64_t c1) {
    float *taps = threadScratch<float>();
    for (; c0 < c1; c0 += kLanes) {
      const int64_t count = std::min(kLanes, c1 - c0);
      for (int64_t o = 0; o < outputs; o += kLanes) {
        microKernels<float>().packLines(
            taps, kLanes, w + (o * channels + c0) * 9, channels * 9,
            std::min(kLanes, outputs - o), 9 * count);
        for (int64_t c = 0; c < count; ++c)
          winogradTiles().weights(taps + c * 9 * kLanes, false,
                                  u + (c0 + c) * t.weightRow() + o,
                                  t.weightStep());
      }
    }
  });
}

/// u[f][o][c] from w[o][c][9], taps turned: the input gradient is a
/// convolution of dy with them.
void transformTurnedWeights(const Tiling &t, const float *w, float *u) {
  const int64_t channels = t.to.layout.channels;
  parallelFor(t.from.layout.channels, 4, [&](int64_t o) {
    float *taps = threadScratch<float>();
    for (int64_t c = 0; c < channels; c += kLanes) {
      microKernels<float>().packLines(taps, kLanes, w + (o * channels + c) * 9,
                                      9, std::min(kLanes, channels - c), 9);
      winogradTiles().weights(taps, true, u + o * t.weightRow() + c,
                              t.weightStep());
    }
  });
}

/// Step 2 for one chunk of `tiles` tiles.
void multiply(const Tiling &t, int64_t tiles, const float *v, const float *u,
              float *m) {
  parallelFor(kFrequencies, 1, [&](int64_t f) {
    const MatrixSource<float> a(v + f * t.step(t.from), t.from.padded, true);
    const MatrixSource<float> b(u + f * t.weightStep(), t.weightRow(), false,
                                true);
    const MatrixSink<float> c(m + f * t.step(t.to), t.to.padded);
    Gemm<float> g{tiles, t.to.padded, t.from.layout.channels, a, b, c, false};
    g.work = t.work();
    g.run();
  });
}

/// The whole convolution, after its weights were transformed to the start of
/// `scratch`.
void convolve(const Tiling &t, const float *from, float *to, float *scratch) {
  t.forEachChunk(scratch, [&](int64_t, float *v, int64_t row, int64_t tiles) {
    float *m = v + kFrequencies * t.step(t.from);
    transformInput(t, from, row, v);
    multiply(t, tiles, v, scratch, m);
    transformOutput(t, m, row, to);
  });
}

/// u[f] = or += v[f]^T d[f] over the tiles of a chunk.
void multiplyTiles(const Tiling &t, int64_t tiles, const float *v,
                   const float *d, float *u, bool add) {
  parallelFor(kFrequencies, 1, [&](int64_t f) {
    const MatrixSource<float> a(v + f * t.step(t.from), t.from.padded, false);
    const MatrixSource<float> b(d + f * t.step(t.to), t.to.padded, false, true);
    const MatrixSink<float> c(u + f * t.weightStep(), t.weightRow());
    Gemm<float> g{t.from.layout.channels, t.to.padded, tiles, a, b, c, add};
    g.work = t.work();
    g.run();
  });
}

/// Adds the weights of the other slots to those of slot 0, in order.
void sumSlots(const Tiling &t, float *u) {
  parallelRanges(t.weightFloats(), 4096, [&](int64_t lo, int64_t hi) {
    for (int64_t slot = 1; slot < t.slots; ++slot) {
      const float *more = u + slot * t.weightFloats();
      for (int64_t i = lo; i < hi; ++i)
        u[i] += more[i];
    }
  });
}

/// dw[o][c][9] (+)= G^T u[f][c][o] G.
void storeWeightGradient(const Tiling &t, const float *u, float *dw,
                         bool accumulate) {
  const int64_t channels = t.from.layout.channels;
  const int64_t outputs = t.to.layout.channels;
  parallelRanges(channels, kLanes, [&](int64_t c0, int64_t c1) {
    float *taps = threadScratch<float>(), *lines = taps + 9 * kLanes * kLanes;
    for (; c0 < c1; c0 += kLanes) {
      const int64_t count = std::min(kLanes, c1 - c0), length = 9 * count;
      for (int64_t o = 0; o < outputs; o += kLanes) {
        const int64_t lineCount = std::min(kLanes, outputs - o);
        for (int64_t c = 0; c < count; ++c)
          winogradTiles().weightGradient(u + (c0 + c) * t.weightRow() + o,
                                         t.weightStep(), taps + c * 9 * kLanes);
        float *to = dw + (o * channels + c0) * 9;
        if (!accumulate) {
          microKernels<float>().transpose(to, channels * 9, taps, kLanes,
                                          length, lineCount);
          continue;
        }
        microKernels<float>().transpose(lines, length, taps, kLanes, length,
                                        lineCount);
        for (int64_t i = 0; i < lineCount; ++i)
          for (int64_t j = 0; j < length; ++j)
            to[i * channels * 9 + j] += lines[i * length + j];
      }
    }
  });
}

} // namespace

bool winogradTakes(const ConvShape &s, PipecConvKind which) {
  const bool planar = s.kernel[0] == 1 && s.in[0] == 1 && s.out[0] == 1 &&
                      s.stride[0] == 1 && s.lo[0] == 0;
  for (int i = 1; i < 3; ++i)
    if (s.kernel[i] != 3 || s.stride[i] != 1 || s.dilation[i] != 1)
      return false;
  // Its transforms round about three times as coarsely as a sum of products:
  // narrow layers, where little is to be won, are not worth that.
  if (!planar || s.groups != 1 || s.c < 64 || s.o < 64 || s.n < 1 ||
      s.inPlane < 1 || s.outPlane < 1)
    return false;
  // Multiply-adds per pair of channels; transforming a weight costs about as
  // much as 50, a tile as 2 of every frequency over the channels.
  const Tiling t(s, which);
  const double tiles = double(t.rows * t.across);
  const double direct = 9.0 * double(t.images * t.to.height * t.to.width);
  const double transformed =
      16 * tiles + 16 * 50 +
      16 * tiles * 6 * (1 / double(s.c) + 1 / double(s.o));
  return transformed < 0.85 * direct;
}

int64_t winogradScratchBytes(const ConvShape &s, PipecConvKind which) {
  return Tiling(s, which).scratchFloats() * int64_t(sizeof(float));
}

void winogradForward(const ConvShape &s, const float *x, const float *w,
                     float *y, float *scratch) {
  const Tiling t(s, PIPEC_CONV_FORWARD);
  transformWeights(t, w, scratch);
  convolve(t, x, y, scratch);
}

void winogradBackwardInput(const ConvShape &s, const float *dy, const float *w,
                           float *dx, float *scratch) {
  const Tiling t(s, PIPEC_CONV_BACKWARD_INPUT);
  transformTurnedWeights(t, w, scratch);
  convolve(t, dy, dx, scratch);
}

void winogradBackwardWeight(const ConvShape &s, const float *x, const float *dy,
                            float *dw, bool accumulate, float *scratch) {
  const Tiling t(s, PIPEC_CONV_BACKWARD_WEIGHT);
  t.forEachChunk(
      scratch, [&](int64_t slot, float *v, int64_t row, int64_t tiles) {
        float *d = v + kFrequencies * t.step(t.from);
        transformInput(t, x, row, v);
        transformGradient(t, dy, row, d);
        multiplyTiles(t, tiles, v, d, scratch + slot * t.weightFloats(),
                      row != slot * t.chunkRows);
      });
  sumSlots(t, scratch);
  storeWeightGradient(t, scratch, dw, accumulate);
}

} // namespace pipec::cpu
