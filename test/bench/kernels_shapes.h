//===- kernels_shapes.h - the shapes that the kernel benchmarks run -*- C++
//-*-//
//
// GPT-2 124M at 4 sequences of 128 tokens, and ResNet-50 at 8 images: every
// contraction of a training step with the number of times it occurs.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>

namespace pipec::bench {

struct MatmulShape {
  const char *name;
  int64_t m, n, k;
  bool transposeA, transposeB;
  int64_t batch; ///< 1: one matrix
  int count;     ///< per training step
};

// Linear layers hold their weight as [in, out]; the head as [out, in].
inline constexpr MatmulShape kGpt2[] = {
    {"qkv", 512, 2304, 768, false, false, 1, 12},
    {"qkv.dx", 512, 768, 2304, false, true, 1, 12},
    {"qkv.dw", 768, 2304, 512, true, false, 1, 12},
    {"proj", 512, 768, 768, false, false, 1, 12},
    {"proj.dx", 512, 768, 768, false, true, 1, 12},
    {"proj.dw", 768, 768, 512, true, false, 1, 12},
    {"fc1", 512, 3072, 768, false, false, 1, 12},
    {"fc1.dx", 512, 768, 3072, false, true, 1, 12},
    {"fc1.dw", 768, 3072, 512, true, false, 1, 12},
    {"fc2", 512, 768, 3072, false, false, 1, 12},
    {"fc2.dx", 512, 3072, 768, false, true, 1, 12},
    {"fc2.dw", 3072, 768, 512, true, false, 1, 12},
    {"head", 512, 50257, 768, false, true, 1, 1},
    {"head.dx", 512, 768, 50257, false, false, 1, 1},
    {"head.dw", 50257, 768, 512, true, false, 1, 1},
    {"scores", 128, 128, 64, false, true, 48, 12},
    {"scores.dq", 128, 64, 128, false, false, 48, 12},
    {"scores.dk", 128, 64, 128, true, false, 48, 12},
    {"mix", 128, 64, 128, false, false, 48, 12},
    {"mix.dp", 128, 128, 64, false, true, 48, 12},
    {"mix.dv", 128, 64, 128, true, false, 48, 12},
};

struct ConvShape {
  const char *name;
  int64_t c, o, in, kernel, stride, pad, groups;
  int count; ///< in ResNet-50; 0: another network
};

inline constexpr int64_t kImages = 8;

inline constexpr ConvShape kResNet50[] = {
    {"stem7x7s2", 3, 64, 224, 7, 2, 3, 1, 1},
    {"64-64.1x1@56", 64, 64, 56, 1, 1, 0, 1, 1},
    {"64.3x3@56", 64, 64, 56, 3, 1, 1, 1, 3},
    {"64-256.1x1@56", 64, 256, 56, 1, 1, 0, 1, 4},
    {"256-64.1x1@56", 256, 64, 56, 1, 1, 0, 1, 2},
    {"256-128.1x1@56", 256, 128, 56, 1, 1, 0, 1, 1},
    {"128.3x3s2@56", 128, 128, 56, 3, 2, 1, 1, 1},
    {"128-512.1x1@28", 128, 512, 28, 1, 1, 0, 1, 4},
    {"256-512.1x1s2@56", 256, 512, 56, 1, 2, 0, 1, 1},
    {"512-128.1x1@28", 512, 128, 28, 1, 1, 0, 1, 3},
    {"128.3x3@28", 128, 128, 28, 3, 1, 1, 1, 3},
    {"512-256.1x1@28", 512, 256, 28, 1, 1, 0, 1, 1},
    {"256.3x3s2@28", 256, 256, 28, 3, 2, 1, 1, 1},
    {"256-1024.1x1@14", 256, 1024, 14, 1, 1, 0, 1, 6},
    {"512-1024.1x1s2@28", 512, 1024, 28, 1, 2, 0, 1, 1},
    {"1024-256.1x1@14", 1024, 256, 14, 1, 1, 0, 1, 5},
    {"256.3x3@14", 256, 256, 14, 3, 1, 1, 1, 5},
    {"1024-512.1x1@14", 1024, 512, 14, 1, 1, 0, 1, 1},
    {"512.3x3s2@14", 512, 512, 14, 3, 2, 1, 1, 1},
    {"512-2048.1x1@7", 512, 2048, 7, 1, 1, 0, 1, 3},
    {"1024-2048.1x1s2@14", 1024, 2048, 14, 1, 2, 0, 1, 1},
    {"2048-512.1x1@7", 2048, 512, 7, 1, 1, 0, 1, 2},
    {"512.3x3@7", 512, 512, 7, 3, 1, 1, 1, 2},
    // not in ResNet-50
    {"depthwise96.3x3@56", 96, 96, 56, 3, 1, 1, 96, 0},
    {"depthwise96.3x3s2@112", 96, 96, 112, 3, 2, 1, 96, 0},
    {"grouped128x32.3x3@56", 128, 128, 56, 3, 1, 1, 32, 0},
};

} // namespace pipec::bench
