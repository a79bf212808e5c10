//===- WinogradTiles.cpp - the transforms, for one processor level --------===//

#include "runtime/kernels/cpu/level/WinogradTiles.h"
#include "runtime/kernels/cpu/level/Vector.h"

namespace pipec::cpu {
namespace {

/// 16 channels, in as many registers as that takes here.
typedef float Channels
    __attribute__((vector_size(16 * sizeof(float)), aligned(alignof(float))));

constexpr int64_t kChannels = 16;

Channels loadChannels(const float *p) {
  return *reinterpret_cast<const Channels *>(p);
}
void storeChannels(float *p, Channels v) {
  *reinterpret_cast<Channels *>(p) = v;
}

// One dimension of each transform, from `in` to `out`; the elements are
// `stride` vectors apart on both sides.
void filterInput(const Channels *in, Channels *out, int stride) {
  const Channels a = in[0], b = in[stride], c = in[2 * stride],
                 d = in[3 * stride];
  out[0] = a - c;
  out[stride] = b + c;
  out[2 * stride] = c - b;
  out[3 * stride] = b - d;
}

void spreadGradient(const Channels *in, Channels *out, int inStride,
                    int stride) {
  const Channels a = in[0], b = in[inStride];
  out[0] = a;
  out[stride] = a + b;
  out[2 * stride] = a - b;
  out[3 * stride] = -b;
}

void gatherOutput(const Channels *in, Channels *out, int stride,
                  int outStride) {
  const Channels a = in[0], b = in[stride], c = in[2 * stride],
                 d = in[3 * stride];
  out[0] = (a + b) + c;
  out[outStride] = (b - c) - d;
}

void spreadWeights(const Channels *in, Channels *out, int inStride,
                   int stride) {
  const Channels a = in[0], b = in[inStride], c = in[2 * inStride];
  const Channels ends = (a + c) * 0.5f, middle = b * 0.5f;
  out[0] = a;
  out[stride] = ends + middle;
  out[2 * stride] = ends - middle;
  out[3 * stride] = c;
}

void gatherWeights(const Channels *in, Channels *out, int stride,
                   int outStride) {
  const Channels a = in[0], b = in[stride], c = in[2 * stride],
                 d = in[3 * stride];
  const Channels sum = (b + c) * 0.5f, difference = (b - c) * 0.5f;
  out[0] = a + sum;
  out[outStride] = difference;
  out[2 * outStride] = sum + d;
}

void inputTiles(const float *strip, int64_t row, int64_t tiles, float *to,
                int64_t tileStep, int64_t step) {
  for (int64_t t = 0; t < tiles; ++t, strip += 2 * kChannels, to += tileStep) {
    Channels d[16];
#pragma unroll
    for (int i = 0; i < 16; ++i)
      d[i] = loadChannels(strip + i / 4 * row + i % 4 * kChannels);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      filterInput(d + i, d + i, 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      filterInput(d + 4 * i, d + 4 * i, 1);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      storeChannels(to + i * step, d[i]);
  }
}

void gradientTiles(const float *strip, int64_t row, int64_t tiles, float *to,
                   int64_t tileStep, int64_t step) {
  for (int64_t t = 0; t < tiles; ++t, strip += 2 * kChannels, to += tileStep) {
    const Channels d[4] = {loadChannels(strip), loadChannels(strip + kChannels),
                           loadChannels(strip + row),
                           loadChannels(strip + row + kChannels)};
    Channels half[8], all[16];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      spreadGradient(d + i, half + i, 2, 2);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      spreadGradient(half + 2 * i, all + 4 * i, 1, 1);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      storeChannels(to + i * step, all[i]);
  }
}

void outputTiles(const float *from, int64_t tileStep, int64_t step,
                 int64_t tiles, float *strip, int64_t row) {
  for (int64_t t = 0; t < tiles;
       ++t, strip += 2 * kChannels, from += tileStep) {
    Channels m[16], half[8], out[4];
#pragma unroll
    for (int i = 0; i < 16; ++i)
      m[i] = loadChannels(from + i * step);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      gatherOutput(m + i, half + i, 4, 4);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      gatherOutput(half + 4 * i, out + 2 * i, 1, 1);
    storeChannels(strip, out[0]);
    storeChannels(strip + kChannels, out[1]);
    storeChannels(strip + row, out[2]);
    storeChannels(strip + row + kChannels, out[3]);
  }
}

void weightVectors(const float *taps, bool turned, float *to, int64_t step) {
  Channels g[9], half[12], all[16];
#pragma unroll
  for (int i = 0; i < 9; ++i)
    g[i] = loadChannels(taps + (turned ? 8 - i : i) * kChannels);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    spreadWeights(g + i, half + i, 3, 3);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    spreadWeights(half + 3 * i, all + 4 * i, 1, 1);
#pragma unroll
  for (int i = 0; i < 16; ++i)
    storeChannels(to + i * step, all[i]);
}

void weightGradientVectors(const float *from, int64_t step, float *taps) {
  Channels u[16], half[12], g[9];
#pragma unroll
  for (int i = 0; i < 16; ++i)
    u[i] = loadChannels(from + i * step);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    gatherWeights(u + i, half + i, 4, 4);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    gatherWeights(half + 4 * i, g + 3 * i, 1, 1);
#pragma unroll
  for (int i = 0; i < 9; ++i)
    storeChannels(taps + i * kChannels, g[i]);
}

} // namespace

extern const WinogradTiles PIPEC_TABLE(winogradTiles);
constexpr WinogradTiles PIPEC_TABLE(winogradTiles) = {
    inputTiles, gradientTiles, outputTiles, weightVectors,
    weightGradientVectors};

} // namespace pipec::cpu
