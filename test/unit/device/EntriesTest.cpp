//===- EntriesTest.cpp - the tables of entry points, beside the headers ---===//
//
// The runtime declares what it calls of NVIDIA's libraries itself, so that it
// builds without them. Where the headers are installed, number and size of all
// parameters are compared with theirs, and the constants too.
//
//===----------------------------------------------------------------------===//
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include "runtime/device/cuda/Driver.h"

#include <gtest/gtest.h>

namespace {

using namespace pipec::cuda;

struct UniqueId {
  char bytes[128];
};

template <typename Theirs, typename Ours> struct Agree;
template <typename R, typename... Theirs, typename... Ours>
struct Agree<R(Theirs...), int(Ours...)> {
  static constexpr bool check() {
    if constexpr (sizeof...(Theirs) == sizeof...(Ours))
      return sizeof(R) == sizeof(int) &&
             ((sizeof(Theirs) == sizeof(Ours) &&
               std::is_pointer_v<Theirs> == std::is_pointer_v<Ours>) &&
              ...);
    return false;
  }
};

#define ENTRY(name, symbol, parameters)                                        \
  static_assert(Agree<decltype(symbol), int parameters>::check(), #symbol);
#include "runtime/device/cuda/Driver.def"
#define ENTRY(name, symbol, parameters)                                        \
  static_assert(Agree<decltype(symbol), int parameters>::check(), #symbol);
#include "runtime/device/cuda/CublasLt.def"
#define ENTRY(name, symbol, parameters)                                        \
  static_assert(Agree<decltype(symbol), int parameters>::check(), #symbol);
#include "runtime/device/cuda/Cudnn.def"
#if __has_include(<nccl.h>)
#define ENTRY(name, symbol, parameters)                                        \
  static_assert(Agree<decltype(symbol), int parameters>::check(), #symbol);
#include "runtime/device/cuda/Nccl.def"
#endif

TEST(Entries, NumbersAreTheHeaders) {
  EXPECT_EQ(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(kComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(kComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(kNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(kNoTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(kExternal, CU_EVENT_RECORD_EXTERNAL);
  EXPECT_EQ(kRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(kPortable, CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(CUBLAS_COMPUTE_32F, 68);
  EXPECT_EQ(CUBLAS_COMPUTE_64F, 70);
  EXPECT_EQ(CUBLASLT_MATMUL_DESC_TRANSA, 3);
  EXPECT_EQ(CUBLASLT_MATMUL_DESC_TRANSB, 4);
  EXPECT_EQ(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5);
  EXPECT_EQ(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6);
  EXPECT_EQ(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1);
  EXPECT_EQ(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5);
  EXPECT_EQ(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8);
  EXPECT_EQ(sizeof(cublasLtMatmulHeuristicResult_t), 96u);
  EXPECT_EQ(CUDNN_CROSS_CORRELATION, 1);
  EXPECT_EQ(CUDNN_FMA_MATH, 3);
  EXPECT_EQ(CUDNN_DETERMINISTIC, 1);
  EXPECT_EQ(sizeof(cudnnConvolutionFwdAlgoPerf_t), 48u);
  EXPECT_EQ(offsetof(cudnnConvolutionFwdAlgoPerf_t, memory), 16u);
  EXPECT_EQ(offsetof(cudnnConvolutionFwdAlgoPerf_t, determinism), 24u);
}

} // namespace
