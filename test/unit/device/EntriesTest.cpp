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

#include "runtime/device/cuda/CublasLt.h"
#include "runtime/device/cuda/Cudnn.h"
#include "runtime/device/cuda/Driver.h"
#include "runtime/device/cuda/Library.h"
#include "runtime/device/cuda/Nccl.h"

#include <gtest/gtest.h>

namespace {

using namespace pipec::cuda;
namespace cublas = pipec::cublas;
namespace cudnn = pipec::cudnn;

using pipec::nccl::UniqueId;

template <typename Theirs, typename Ours> constexpr bool isLike() {
  if constexpr (std::is_void_v<Theirs> || std::is_void_v<Ours>)
    return std::is_void_v<Theirs> && std::is_void_v<Ours>;
  else
    return sizeof(Theirs) == sizeof(Ours) &&
           std::is_pointer_v<Theirs> == std::is_pointer_v<Ours>;
}

template <typename Theirs, typename Ours> struct Agree;
template <typename R, typename... Theirs, typename Q, typename... Ours>
struct Agree<R(Theirs...), Q(Ours...)> {
  static constexpr bool check() {
    if constexpr (sizeof...(Theirs) == sizeof...(Ours))
      return isLike<R, Q>() && (isLike<Theirs, Ours>() && ...);
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

// What is looked for and may be missing.
static_assert(Agree<decltype(cublasLtGetStatusString), StatusText>::check());
static_assert(Agree<decltype(cudnnGetErrorString), StatusText>::check());
#if CUDNN_MAJOR >= 9
static_assert(Agree<decltype(cudnnGetLastErrorString), LastErrorInto>::check());
#endif
#if __has_include(<nccl.h>)
static_assert(Agree<decltype(ncclGetErrorString), StatusText>::check());
static_assert(Agree<decltype(ncclGetLastError), LastErrorOf>::check());
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
  EXPECT_EQ(kNodePriorities, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  EXPECT_EQ(kJitErrors, CU_JIT_ERROR_LOG_BUFFER);
  EXPECT_EQ(kJitErrorBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  EXPECT_EQ(kPortable, CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(cublas::kReal32, CUDA_R_32F);
  EXPECT_EQ(cublas::kReal64, CUDA_R_64F);
  EXPECT_EQ(cublas::kRealBf16, CUDA_R_16BF);
  EXPECT_EQ(cublas::kReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(cublas::kReduceInComputeType,
            CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(cublas::kCompute32, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(cublas::kCompute64, CUBLAS_COMPUTE_64F);
  EXPECT_EQ(cublas::kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(cublas::kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(cublas::kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
  EXPECT_EQ(cublas::kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  EXPECT_EQ(cublas::kAddBias, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(cublas::kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(cublas::kBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(cublas::kMaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(cublas::kAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(cublas::kAlignmentA + 3,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  EXPECT_EQ(sizeof(cublas::Found), sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(cublas::Found, state),
            offsetof(cublasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(offsetof(cublas::Found, workspaceBytes),
            offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(cudnn::kFloat, CUDNN_DATA_FLOAT);
  EXPECT_EQ(cudnn::kDouble, CUDNN_DATA_DOUBLE);
  EXPECT_EQ(cudnn::kBfloat16, CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(cudnn::kCrossCorrelation, CUDNN_CROSS_CORRELATION);
  EXPECT_EQ(cudnn::kRowMajor, CUDNN_TENSOR_NCHW);
  EXPECT_EQ(cudnn::kFmaMath, CUDNN_FMA_MATH);
  EXPECT_EQ(cudnn::kDefaultMath, CUDNN_DEFAULT_MATH);
  EXPECT_EQ(cudnn::kTensorMath, CUDNN_TENSOR_OP_MATH);
  EXPECT_EQ(cudnn::kDeterministic, CUDNN_DETERMINISTIC);
  EXPECT_EQ(cudnn::kTransformForward,
            1 << CUDNN_CONVOLUTION_FWD_ALGO_FFT |
                1 << CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING |
                1 << CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD |
                1 << CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED);
  EXPECT_EQ(cudnn::kTransformData,
            1 << CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT |
                1 << CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING |
                1 << CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD |
                1 << CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED);
  EXPECT_EQ(cudnn::kTransformFilter,
            1 << CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT |
                1 << CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING |
                1 << CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD |
                1 << CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED);
  EXPECT_EQ(sizeof(cudnn::Found), sizeof(cudnnConvolutionFwdAlgoPerf_t));
  EXPECT_EQ(offsetof(cudnn::Found, bytes),
            offsetof(cudnnConvolutionFwdAlgoPerf_t, memory));
  EXPECT_EQ(offsetof(cudnn::Found, determinism),
            offsetof(cudnnConvolutionFwdAlgoPerf_t, determinism));
#if __has_include(<nccl.h>)
  EXPECT_EQ(pipec::nccl::kBytes, ncclUint8);
  EXPECT_EQ(pipec::nccl::kRemoteError, ncclRemoteError);
  EXPECT_EQ(pipec::nccl::kInProgress, ncclInProgress);
  EXPECT_EQ(sizeof(UniqueId), sizeof(ncclUniqueId));
#endif
}

} // namespace
