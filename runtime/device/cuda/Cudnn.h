//===- Cudnn.h - numbers of cuDNN, as far as used ---------------*- C++ -*-===//
#pragma once

#include <cstddef>

namespace pipec::cudnn {

constexpr int kFloat = 0, kDouble = 1, kBfloat16 = 9; ///< cudnnDataType_t
constexpr int kCrossCorrelation = 1; ///< cudnnConvolutionMode_t
constexpr int kRowMajor = 0;         ///< cudnnTensorFormat_t
// cudnnMathType_t: f32 products, or TF32 ones if the device has them; tensor
// cores for narrow numbers.
constexpr int kFmaMath = 3, kDefaultMath = 0, kTensorMath = 1;
constexpr int kDeterministic = 1; ///< cudnnDeterminism_t

/// cudnnConvolutionFwdAlgo_t and its two likes: those that transform operands
/// (FFT, Winograd) before they multiply are the bits that are set.
constexpr unsigned kTransformForward = 0b11110000, kTransformData = 0b00111100,
                   kTransformFilter = 0b01110100;

/// cudnnConvolutionFwdAlgoPerf_t and its two likes.
struct Found {
  int algorithm, status;
  float time;
  size_t bytes;
  int determinism, math;
  int reserved[3];
};

} // namespace pipec::cudnn
