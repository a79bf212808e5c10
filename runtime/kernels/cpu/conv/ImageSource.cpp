//===- ImageSource.cpp - images as operands of a product ------------------===//

#include "runtime/kernels/cpu/conv/ImageSource.h"

#include <algorithm>

namespace pipec::cpu {
namespace {

/// A panel has few columns; each could be a stretch of its own.
constexpr int64_t kMaxStretches = 64;

/// The part of a stretch that lies in the source, for one tap: false when none.
bool clip(const Window &w, const Stretch &s, const int64_t (&shift)[3],
          int64_t imageStride, int64_t &base, int32_t &first, int32_t &last) {
  const int64_t z = s.z * w.step[0] + shift[0];
  const int64_t y = s.y * w.step[1] + shift[1];
  if (z < 0 || z >= w.image[0] || y < 0 || y >= w.image[1])
    return false;
  const int64_t step = w.step[2], x = s.x * step + shift[2], width = w.image[2];
  first = s.first;
  last = s.last;
  if (x + first * step < 0)
    first = int32_t((-x + step - 1) / step);
  if (x + (last - 1) * step >= width)
    last = x < width ? int32_t((width - x - 1) / step + 1) : 0;
  base = s.image * imageStride + (z * w.image[1] + y) * width + x;
  return first < last;
}

} // namespace

template <typename T>
void ImageSource<T>::pack(T *dst, int64_t width, int64_t first, int64_t count,
                          int64_t k0, int64_t kc) const {
  using Run = typename MicroKernels<T>::Run;
  const MicroKernels<T> &u = microKernels<T>();
  Stretch stretches[kMaxStretches];
  int64_t stretchCount = 0;
  forEachStretch(w, u.lanes, first, count,
                 [&](const Stretch &s) { stretches[stretchCount++] = s; });
  const int64_t taps = w.taps(), plane = w.imagePlane();
  int64_t tap = 0;
  for (int i = 0; i < w.count[0]; ++i)
    for (int j = 0; j < w.count[1]; ++j)
      for (int k = 0; k < w.count[2]; ++k, ++tap) {
        // Channels of this tap in [k0, k0 + kc).
        const int64_t c0 = k0 > tap ? (k0 - tap - 1) / taps + 1 : 0;
        const int64_t c1 = k0 + kc > tap ? (k0 + kc - tap - 1) / taps + 1 : 0;
        if (c0 >= c1)
          continue;
        const int64_t shift[] = {w.shift[0][i], w.shift[1][j], w.shift[2][k]};
        Run runs[kMaxStretches];
        int64_t runCount = 0;
        for (int64_t s = 0; s < stretchCount; ++s) {
          Run run{0, stretches[s].vector, 0, 0};
          if (clip(w, stretches[s], shift, imageStride, run.base, run.first,
                   run.last))
            runs[runCount++] = run;
        }
        u.packRuns(dst + (c0 * taps + tap - k0) * width, taps * width,
                   width / u.lanes, data + c0 * plane, plane, c1 - c0, runs,
                   runCount, w.step[2]);
      }
}

template <typename T>
void ImageLines<T>::pack(T *dst, int64_t width, int64_t first, int64_t count,
                         int64_t k0, int64_t kc) const {
  const MicroKernels<T> &u = microKernels<T>();
  // Positions first (as forward packs them), then turned over, a few at a time.
  constexpr int64_t kPositions = 64;
  static_assert(kPositions <= kMaxStretches);
  T *aside = threadScratch<T>();
  for (int64_t k = 0; k < kc; k += kPositions) {
    const int64_t positions = std::min(kPositions, kc - k);
    source.pack(aside, kPositions, k0 + k, positions, first, count);
    u.packLines(dst + k * width, width, aside, kPositions, count, positions);
  }
}

template <typename T>
const T *ChannelLines<T>::inPlace(int64_t first, int64_t k0,
                                  int64_t &ld) const {
  if (!periodOf(plane))
    return nullptr;
  ld = plane;
  return data + k0 / plane * imageStride + first * plane + k0 % plane;
}

template <typename T>
void ChannelLines<T>::pack(T *dst, int64_t width, int64_t first, int64_t count,
                           int64_t k0, int64_t kc) const {
  const MicroKernels<T> &u = microKernels<T>();
  for (int64_t k = 0; k < kc;) {
    const int64_t image = (k0 + k) / plane, at = (k0 + k) % plane;
    const int64_t length = std::min(plane - at, kc - k);
    u.packLines(dst + k * width, width,
                data + image * imageStride + first * plane + at, plane, count,
                length);
    k += length;
  }
}

template <typename T>
ImageSink<T>::ImageSink(const Window &grid, T *data, const int64_t (&image)[3],
                        const int64_t (&step)[3], const int64_t (&shift)[3],
                        int64_t imageStride)
    : grid(grid), data(data), imageStride(imageStride),
      plane(image[0] * image[1] * image[2]), dense(true) {
  for (int i = 0; i < 3; ++i) {
    this->image[i] = image[i];
    this->step[i] = step[i];
    this->shift[i] = shift[i];
    dense &= grid.grid[i] == image[i] && step[i] == 1 && shift[i] == 0;
  }
}

template <typename T>
T *ImageSink<T>::inPlace(int64_t row, int64_t column, int64_t n,
                         int64_t &ld) const {
  const int64_t number = column / plane, at = column - number * plane;
  if (!dense || at + n > plane)
    return nullptr;
  ld = plane;
  return data + number * imageStride + row * plane + at;
}

template <typename T>
void ImageSink<T>::put(int64_t row, int64_t m, int64_t column, int64_t n,
                       const T *tile, int64_t ld, bool add) const {
  // One "vector" holds all columns: stretches are whole rows.
  forEachStretch(grid, n, column, n, [&](const Stretch &s) {
    const int64_t z = s.z * step[0] + shift[0], y = s.y * step[1] + shift[1];
    T *to = data + s.image * imageStride + row * plane +
            (z * image[1] + y) * image[2] + s.x * step[2] + shift[2];
    const int64_t stride = step[2];
    for (int64_t i = 0; i < m; ++i, to += plane) {
      const T *from = tile + i * ld;
      if (stride == 1 && add)
        for (int64_t l = s.first; l < s.last; ++l)
          to[l] += from[l];
      else if (stride == 1)
        for (int64_t l = s.first; l < s.last; ++l)
          to[l] = from[l];
      else
        for (int64_t l = s.first; l < s.last; ++l)
          to[l * stride] = add ? to[l * stride] + from[l] : from[l];
    }
  });
}

#define PIPEC_INSTANTIATE(T)                                                   \
  template class ImageSource<T>;                                               \
  template class ImageLines<T>;                                                \
  template class ChannelLines<T>;                                              \
  template class ImageSink<T>;
PIPEC_INSTANTIATE(float)
PIPEC_INSTANTIATE(double)
#undef PIPEC_INSTANTIATE

} // namespace pipec::cpu
