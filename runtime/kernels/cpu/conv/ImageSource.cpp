//===- ImageSource.cpp - images as operands of a product ------------------===//

#include "runtime/kernels/cpu/conv/ImageSource.h"

#include "runtime/kernels/cpu/level/RowKernels.h"
#include <algorithm>

namespace pipec::cpu {
namespace {

/// A panel has few columns; each could be a stretch of its own.
constexpr int64_t kMaxStretches = 64;

/// Stretches whose row (z, y) lies in the source for some taps of these two
/// axes, and where lane 0 would be at x = 0 of that row.
struct Rows {
  int64_t count = 0;
  struct Row {
    int64_t base, x; ///< x: source position of lane 0 before the tap's shift
    int32_t vector, first, last;
  } rows[kMaxStretches];

  Rows(const Window &w, const Stretch *stretches, int64_t n, int64_t zShift,
       int64_t yShift, int64_t imageStride) {
    for (int64_t i = 0; i < n; ++i) {
      const Stretch &s = stretches[i];
      const int64_t z = s.z * w.step[0] + zShift, y = s.y * w.step[1] + yShift;
      if (z < 0 || z >= w.image[0] || y < 0 || y >= w.image[1])
        continue;
      rows[count++] = {s.image * imageStride +
                           (z * w.image[1] + y) * w.image[2],
                       s.x * w.step[2], s.vector, s.first, s.last};
    }
  }

  /// The runs of a tap: what of the rows lies in the source along x.
  template <typename Run>
  int64_t clip(const Window &w, int64_t shift, Run *runs) const {
    const int64_t step = w.step[2], width = w.image[2];
    int64_t n = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Row &r = rows[i];
      const int64_t x = r.x + shift;
      Run run{r.base + x, r.vector, r.first, r.last};
      if (x + r.first * step < 0)
        run.first = int32_t((-x + step - 1) / step);
      if (x + (r.last - 1) * step >= width)
        run.last = x < width ? int32_t((width - x - 1) / step + 1) : 0;
      runs[n] = run;
      n += run.first < run.last;
    }
    return n;
  }
};

} // namespace

template <typename T>
void ImageSource<T>::pack(T *dst, int64_t width, int64_t first, int64_t count,
                          int64_t k0, int64_t kc) const {
  using Run = typename RowKernels<T>::Run;
  const MicroKernels<T> &u = microKernels<T>();
  Stretch stretches[kMaxStretches];
  int64_t stretchCount = 0;
  forEachStretch(w, u.lanes, first, count,
                 [&](const Stretch &s) { stretches[stretchCount++] = s; });
  const int64_t plane = w.imagePlane();
  int64_t tap = 0;
  for (int i = 0; i < w.count[0]; ++i)
    for (int j = 0; j < w.count[1]; ++j) {
      const Rows rows(w, stretches, stretchCount, w.shift[0][i], w.shift[1][j],
                      imageStride);
      for (int k = 0; k < w.count[2]; ++k, ++tap) {
        const Share share = shareOf(tap, k0, kc);
        if (share.first >= share.last)
          continue;
        Run runs[kMaxStretches];
        const int64_t runCount = rows.clip(w, w.shift[2][k], runs);
        rowKernels<T>().packRuns(dst + share.row * width, share.step * width,
                                 width / u.lanes, data + share.first * plane,
                                 plane, share.last - share.first, runs,
                                 runCount, w.step[2]);
      }
    }
}

template <typename T>
typename ImageSource<T>::Share ImageSource<T>::shareOf(int64_t tap, int64_t k0,
                                                       int64_t kc) const {
  if (channels) {
    const int64_t first = std::clamp<int64_t>(k0 - tap * channels, 0, channels);
    const int64_t last =
        std::clamp<int64_t>(k0 + kc - tap * channels, 0, channels);
    return {first, last, tap * channels + first - k0, 1};
  }
  const int64_t taps = w.taps();
  const int64_t first = k0 / taps + (tap < k0 % taps);
  const int64_t last = (k0 + kc) / taps + (tap < (k0 + kc) % taps);
  return {first, last, first * taps + tap - k0, taps};
}

template <typename T>
void ImageSource<T>::prefetch(int64_t first, int64_t count, int64_t k0,
                              int64_t kc, int64_t part, int64_t parts) const {
  // The channels' planes around the first column; taps overlap.
  const int64_t taps = w.taps(), plane = w.imagePlane();
  const int64_t c0 = channels ? k0 % channels : k0 / taps;
  const int64_t c1 =
      channels ? std::min(channels, c0 + kc) : (k0 + kc - 1) / taps + 1;
  const int64_t gridPlane = w.gridPlane(), at = first % gridPlane;
  const int64_t begin = first / gridPlane * imageStride +
                        at * plane / gridPlane; // same relative position
  const int64_t length = count * plane / gridPlane;
  constexpr int64_t perCacheLine = 64 / sizeof(T);
  const int64_t count1 = c1 - c0;
  for (int64_t c = count1 * part / parts; c < count1 * (part + 1) / parts; ++c)
    for (int64_t j = 0; j < length; j += perCacheLine)
      __builtin_prefetch(data + begin + (c0 + c) * plane + j, 0, 2);
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
T *ImageSink<T>::inPlace(int64_t row, int64_t column, int64_t n,
                         int64_t &ld) const {
  const int64_t image = column / plane, at = column - image * plane;
  ld = plane;
  return at + n <= plane ? data + image * imageStride + row * plane + at
                         : nullptr;
}

template <typename T>
void ImageSink<T>::put(int64_t row, int64_t m, int64_t column, int64_t n,
                       const T *tile, int64_t ld, bool add) const {
  for (int64_t j = 0; j < n;) { // pieces of images
    const int64_t image = (column + j) / plane, at = (column + j) % plane;
    const int64_t length = std::min(plane - at, n - j);
    T *to = data + image * imageStride + row * plane + at;
    for (int64_t i = 0; i < m; ++i)
      rowKernels<T>().putRun(to + i * plane, 1, tile + i * ld + j, length, add);
    j += length;
  }
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
