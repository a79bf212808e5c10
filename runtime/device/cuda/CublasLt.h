//===- CublasLt.h - numbers of cuBLASLt, as far as used ---------*- C++ -*-===//
#pragma once

#include <cstddef>
#include <cstdint>

namespace pipec::cublas {

// cudaDataType and cublasComputeType_t.
constexpr int kReal32 = 0, kReal64 = 1, kRealBf16 = 14;
constexpr int kCompute32 = 68, kCompute64 = 70;
// Attributes of a product, of a layout and of a preference.
constexpr int kTransposeA = 3, kTransposeB = 4;
constexpr int kEpilogue = 7, kBiasPointer = 8;
constexpr uint32_t kAddBias = 4; ///< cublasLtEpilogue_t
constexpr int kBatchCount = 5, kBatchStride = 6;
constexpr int kMaxWorkspace = 1;
constexpr int kReductions = 3; ///< a mask of cublasLtReductionScheme_t
constexpr int kAlignmentA = 5; ///< and B, C, D after it

// Attributes of an algorithm: its number, parts that the sums are made of, and
// how those are added up.
constexpr int kAlgorithmId = 0, kAlgorithmParts = 2, kAlgorithmReduction = 3;

/// cublasLtReductionScheme_t: partial sums are not rounded to the result's
/// type.
constexpr uint32_t kReduceInComputeType = 2;

/// cublasLtMatmulHeuristicResult_t.
struct Found {
  uint64_t algorithm[8];
  size_t workspaceBytes;
  int state;
  float waves;
  int reserved[4];
};

} // namespace pipec::cublas
