//===- ImageSource.h - images as operands of a product ----------*- C++ -*-===//
//
// A convolution is a product whose right operand has a row per (channel, tap)
// and a column per (image, position). That matrix is never built: panels of it
// are packed straight from the image, rows of which supply runs of neighbouring
// columns.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/gemm/Gemm.h"

namespace pipec::cpu {

/// The largest kernel extent along an axis, and the largest kernel, that the
/// product path takes.
constexpr int64_t kMaxTaps = 128, kMaxKernel = 512;

/// Which source positions a grid of positions reads: along axis a, grid
/// position p reads p * step[a] + shift[a][t] for tap t < count[a].
struct Window {
  int64_t images;
  int64_t grid[3];  ///< columns: images x grid
  int64_t image[3]; ///< extent of the source
  int64_t step[3];
  int count[3];
  int64_t shift[3][kMaxTaps];

  int64_t taps() const { return int64_t(count[0]) * count[1] * count[2]; }
  int64_t gridPlane() const { return grid[0] * grid[1] * grid[2]; }
  int64_t imagePlane() const { return image[0] * image[1] * image[2]; }
};

/// Rows of a grid as the columns [first, first + count) see them: each is a
/// stretch of lanes of one vector.
struct Stretch {
  int64_t image, z, y, x; ///< x: of lane 0, maybe negative
  int32_t vector, first, last;
};

/// Cuts columns into stretches; calls body(stretch) in order.
template <typename Body>
void forEachStretch(const Window &w, int64_t lanes, int64_t first,
                    int64_t count, const Body &body) {
  const int64_t row = w.grid[2], plane = w.gridPlane();
  int64_t image = first / plane, rest = first % plane;
  int64_t z = rest / (w.grid[1] * row), y = rest / row % w.grid[1];
  int64_t x = rest % row;
  for (int64_t j = 0; j < count;) {
    const int64_t lane = j % lanes;
    int64_t length = row - x;
    length = length < lanes - lane ? length : lanes - lane;
    length = length < count - j ? length : count - j;
    body(Stretch{image, z, y, x - lane, int32_t(j / lanes), int32_t(lane),
                 int32_t(lane + length)});
    j += length;
    x += length;
    if (x < row)
      continue;
    x = 0;
    if (++y < w.grid[1])
      continue;
    y = 0;
    if (++z < w.grid[0])
      continue;
    z = 0;
    ++image;
  }
}

/// Right operand of forward and of the input gradient: line = (image,
/// position), k = channel * taps + tap, or, given the number of channels,
/// k = tap * channels + channel.
template <typename T> class ImageSource final : public PanelSource<T> {
public:
  /// `data`: channel 0 of image 0; images are `imageStride` apart.
  ImageSource(const Window &w, const T *data, int64_t imageStride,
              int64_t channels = 0)
      : w(w), data(data), imageStride(imageStride), channels(channels) {}
  void pack(T *dst, int64_t width, int64_t first, int64_t count, int64_t k0,
            int64_t kc) const override;
  void prefetch(int64_t first, int64_t count, int64_t k0, int64_t kc,
                int64_t part, int64_t parts) const override;

private:
  /// A tap's channels [first, last) in a block of k, the row of the first and
  /// how far rows are apart.
  struct Share {
    int64_t first, last, row, step;
  };
  Share shareOf(int64_t tap, int64_t k0, int64_t kc) const;

  const Window &w;
  const T *data;
  int64_t imageStride, channels;
};

/// Right operand of the weight gradient: line = (channel, tap), k = (image,
/// position).
template <typename T> class ImageLines final : public PanelSource<T> {
public:
  ImageLines(const ImageSource<T> &source) : source(source) {}
  void pack(T *dst, int64_t width, int64_t first, int64_t count, int64_t k0,
            int64_t kc) const override;

private:
  const ImageSource<T> &source;
};

/// Left operand of the weight gradient: line = channel, k = (image, position)
/// of an image of `plane` positions.
template <typename T> class ChannelLines final : public PanelSource<T> {
public:
  ChannelLines(const T *data, int64_t plane, int64_t imageStride)
      : data(data), plane(plane), imageStride(imageStride) {}
  /// What Gemm::period should be: blocks of k within an image need no packing,
  /// but small images make short blocks.
  static int64_t periodOf(int64_t plane) { return plane >= 128 ? plane : 0; }
  const T *inPlace(int64_t first, int64_t k0, int64_t &ld) const override;
  void pack(T *dst, int64_t width, int64_t first, int64_t count, int64_t k0,
            int64_t kc) const override;

private:
  const T *data;
  int64_t plane, imageStride;
};

/// Result of forward and of the input gradient: row = channel, column = (image,
/// position) where positions are the grid.
template <typename T> class ImageSink final : public TileSink<T> {
public:
  ImageSink(const Window &grid, T *data, int64_t imageStride)
      : grid(grid), data(data), imageStride(imageStride),
        plane(grid.gridPlane()) {}
  T *inPlace(int64_t row, int64_t column, int64_t n,
             int64_t &ld) const override;
  void put(int64_t row, int64_t m, int64_t column, int64_t n, const T *tile,
           int64_t ld, bool add) const override;

private:
  const Window &grid;
  T *data;
  int64_t imageStride, plane;
};

} // namespace pipec::cpu
