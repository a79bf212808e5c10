//===- WinogradTiles.cpp - the transforms, for one processor level --------===//

#include "runtime/kernels/cpu/conv/WinogradTiles.h"

namespace pipec::cpu {
namespace {

typedef float Vector
    __attribute__((vector_size(16 * sizeof(float)), aligned(alignof(float))));

constexpr int64_t kLanes = 16;

Vector load(const float *p) { return *reinterpret_cast<const Vector *>(p); }
void store(float *p, Vector v) { *reinterpret_cast<Vector *>(p) = v; }

// One dimension of each transform, from `in` to `out`; the elements are
// `stride` vectors apart on both sides.
void filterInput(const Vector *in, Vector *out, int stride) {
  const Vector a = in[0], b = in[stride], c = in[2 * stride],
               d = in[3 * stride];
  out[0] = a - c;
  out[stride] = b + c;
  out[2 * stride] = c - b;
  out[3 * stride] = b - d;
}

void spreadGradient(const Vector *in, Vector *out, int inStride, int stride) {
  const Vector a = in[0], b = in[inStride];
  out[0] = a;
  out[stride] = a + b;
  out[2 * stride] = a - b;
  out[3 * stride] = -b;
}

void gatherOutput(const Vector *in, Vector *out, int stride, int outStride) {
  const Vector a = in[0], b = in[stride], c = in[2 * stride],
               d = in[3 * stride];
  out[0] = (a + b) + c;
  out[outStride] = (b - c) - d;
}

void spreadWeights(const Vector *in, Vector *out, int inStride, int stride) {
  const Vector a = in[0], b = in[inStride], c = in[2 * inStride];
  const Vector ends = (a + c) * 0.5f, middle = b * 0.5f;
  out[0] = a;
  out[stride] = ends + middle;
  out[2 * stride] = ends - middle;
  out[3 * stride] = c;
}

void gatherWeights(const Vector *in, Vector *out, int stride, int outStride) {
  const Vector a = in[0], b = in[stride], c = in[2 * stride],
               d = in[3 * stride];
  const Vector sum = (b + c) * 0.5f, difference = (b - c) * 0.5f;
  out[0] = a + sum;
  out[outStride] = difference;
  out[2 * outStride] = sum + d;
}

void inputTiles(const float *strip, int64_t row, int64_t tiles, float *to,
                int64_t tileStep, int64_t step) {
  for (int64_t t = 0; t < tiles; ++t, strip += 2 * kLanes, to += tileStep) {
    Vector d[16];
#pragma unroll
    for (int i = 0; i < 16; ++i)
      d[i] = load(strip + i / 4 * row + i % 4 * kLanes);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      filterInput(d + i, d + i, 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      filterInput(d + 4 * i, d + 4 * i, 1);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      store(to + i * step, d[i]);
  }
}

void gradientTiles(const float *strip, int64_t row, int64_t tiles, float *to,
                   int64_t tileStep, int64_t step) {
  for (int64_t t = 0; t < tiles; ++t, strip += 2 * kLanes, to += tileStep) {
    const Vector d[4] = {load(strip), load(strip + kLanes), load(strip + row),
                         load(strip + row + kLanes)};
    Vector half[8], all[16];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      spreadGradient(d + i, half + i, 2, 2);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      spreadGradient(half + 2 * i, all + 4 * i, 1, 1);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      store(to + i * step, all[i]);
  }
}

void outputTiles(const float *from, int64_t tileStep, int64_t step,
                 int64_t tiles, float *strip, int64_t row) {
  for (int64_t t = 0; t < tiles; ++t, strip += 2 * kLanes, from += tileStep) {
    Vector m[16], half[8], out[4];
#pragma unroll
    for (int i = 0; i < 16; ++i)
      m[i] = load(from + i * step);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      gatherOutput(m + i, half + i, 4, 4);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      gatherOutput(half + 4 * i, out + 2 * i, 1, 1);
    store(strip, out[0]);
    store(strip + kLanes, out[1]);
    store(strip + row, out[2]);
    store(strip + row + kLanes, out[3]);
  }
}

void weightVectors(const float *taps, bool turned, float *to, int64_t step) {
  Vector g[9], half[12], all[16];
#pragma unroll
  for (int i = 0; i < 9; ++i)
    g[i] = load(taps + (turned ? 8 - i : i) * kLanes);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    spreadWeights(g + i, half + i, 3, 3);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    spreadWeights(half + 3 * i, all + 4 * i, 1, 1);
#pragma unroll
  for (int i = 0; i < 16; ++i)
    store(to + i * step, all[i]);
}

void weightGradientVectors(const float *from, int64_t step, float *taps) {
  Vector u[16], half[12], g[9];
#pragma unroll
  for (int i = 0; i < 16; ++i)
    u[i] = load(from + i * step);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    gatherWeights(u + i, half + i, 4, 4);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    gatherWeights(half + 4 * i, g + 3 * i, 1, 1);
#pragma unroll
  for (int i = 0; i < 9; ++i)
    store(taps + i * kLanes, g[i]);
}

} // namespace

#define PIPEC_JOIN2(a, b) a##b
#define PIPEC_JOIN(a, b) PIPEC_JOIN2(a, b)
extern const WinogradTiles PIPEC_JOIN(winogradTiles_, PIPEC_LEVEL);
constexpr WinogradTiles PIPEC_JOIN(winogradTiles_, PIPEC_LEVEL) = {
    inputTiles, gradientTiles, outputTiles, weightVectors,
    weightGradientVectors};

} // namespace pipec::cpu
