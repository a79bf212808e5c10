//===- cudnn.cpp - a stand-in for libcudnn --------------------------------===//
//
// Convolutions by the CPU's kernels, which the program exports. Each search
// offers faster algorithms first, which nothing may run: one that transforms
// its operands (numbers of bf16 would be rounded again), one that is not
// deterministic, one that does not take the shape, one that works in more
// memory than there is, and one that is refused when it is run. An algorithm
// runs with the products that the search has named, which are not those that it
// was asked for where numbers are of bf16.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cuda/Cudnn.h"
#include "test/standin/CudnnParts.h"
#include "test/standin/Machine.h"
#include "test/unit/target/Convolve.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace pipec::standin;
using namespace pipec::cudnn;

namespace {

// cudnnStatus_t.
enum Status { Success = 0, BadParameter = 2000, NotSupported = 3000 };
constexpr int kUnordered = 0, kOrdered = 1, kLarge = 2,
              kRefused = 3; // algorithms
// That of Winograd has another number for each kind.
constexpr int kWinogradForward = 6, kWinogradData = 4, kWinogradFilter = 5;
constexpr size_t kNeededWorkspace = 8192, kLargeWorkspace = size_t(1) << 40;

struct Tensor {
  int type = 0;
  std::vector<int> sizes, strides;
};
struct Convolution {
  std::vector<int> pads, strides, dilations;
  int type = 0, groups = 1, math = 0;
};
using Handle = CudnnHandle;
/// False when the descriptors do not go together. `narrowMath`: that of bf16.
bool describe(const Tensor &x, const Tensor &w, const Convolution &conv,
              const Tensor &y, int narrowMath, PipecConv &shape) {
  shape = {};
  const size_t rank = conv.pads.size();
  if (rank < 2 || rank > 3 || x.sizes.size() != rank + 2 ||
      w.sizes.size() != rank + 2 || y.sizes.size() != rank + 2 ||
      (conv.math != kFmaMath && conv.math != kDefaultMath &&
       conv.math != kTensorMath) ||
      w.type != x.type || y.type != x.type)
    return false;
  // Sums of bf16 are of f32.
  const bool isNarrow = x.type == kBfloat16;
  if (conv.type != (isNarrow ? kFloat : x.type) ||
      (isNarrow ? conv.math != narrowMath : conv.math == kTensorMath))
    return false;
  shape.dtype = isNarrow               ? PIPEC_BF16
                : conv.type == kDouble ? PIPEC_F64
                                       : PIPEC_F32;
  shape.spatial_rank = static_cast<int32_t>(rank);
  shape.groups = conv.groups;
  shape.n = x.sizes[0], shape.c = x.sizes[1], shape.o = w.sizes[0];
  if (y.sizes[0] != shape.n || y.sizes[1] != shape.o ||
      w.sizes[1] * shape.groups != shape.c)
    return false;
  for (size_t i = 0; i < rank; ++i) {
    shape.in[i] = x.sizes[i + 2], shape.out[i] = y.sizes[i + 2];
    shape.kernel[i] = w.sizes[i + 2];
    shape.stride[i] = conv.strides[i], shape.dilation[i] = conv.dilations[i];
    shape.pad_lo[i] = shape.pad_hi[i] = conv.pads[i];
    const int64_t reach = shape.dilation[i] * (shape.kernel[i] - 1) + 1;
    if (conv.pads[i] < 0 ||
        shape.out[i] !=
            (shape.in[i] + 2 * shape.pad_lo[i] - reach) / shape.stride[i] + 1)
      return false;
  }
  int dense = 1;
  for (size_t i = rank + 2; i-- > 0; dense *= x.sizes[i])
    if (x.strides[i] != dense)
      return false;
  return true;
}

bool isSetting(const char *name, const char *value) {
  const char *set = std::getenv(name);
  return set && std::strcmp(set, value) == 0;
}

int search(int winograd, const void *x, const void *w, const void *conv,
           const void *y, int wanted, int *found, void *results) {
  PipecConv shape;
  if (wanted < 6 ||
      !describe(*static_cast<const Tensor *>(x),
                *static_cast<const Tensor *>(w),
                *static_cast<const Convolution *>(conv),
                *static_cast<const Tensor *>(y), kTensorMath, shape))
    return BadParameter;
  if (shape.dtype == PIPEC_BF16 && isSetting("PIPEC_STANDIN_NARROW", "none"))
    return NotSupported;
  const int math = static_cast<const Convolution *>(conv)->math,
            own = math == kTensorMath ? kDefaultMath : math;
  Found all[6] = {
      {winograd, 0, 0.5, 0, kDeterministic, own, {}},
      {kUnordered, 0, 1, 0, 0, own, {}},
      {kOrdered, NotSupported, -1, 0, kDeterministic, own, {}},
      {kLarge, 0, 1.5, kLargeWorkspace, kDeterministic, own, {}},
      {kRefused, 0, 1.8F, kNeededWorkspace, kDeterministic, own, {}},
      {kOrdered, 0, 2, kNeededWorkspace, kDeterministic, own, {}}};
  if (setting("PIPEC_STANDIN_TRANSFORMS", 0))
    for (Found &one : all) {
      one.status = one.algorithm == winograd ? Success : NotSupported;
      one.bytes = kNeededWorkspace;
    }
  std::memcpy(results, all, sizeof all);
  *found = 6;
  return Success;
}

/// Whether TF32, which has 10 bits of fraction, holds all numbers.
bool isTf32(const void *data, int64_t count) {
  const auto *bits = static_cast<const uint32_t *>(data);
  return std::all_of(bits, bits + count,
                     [](uint32_t number) { return number % (1 << 13) == 0; });
}

/// Whether a device that multiplies in TF32 would give the same.
bool isExact(const PipecConv &shape, int kind, const void *first,
             const void *second) {
  int64_t x = shape.n * shape.c, y = shape.n * shape.o,
          w = shape.o * shape.c / shape.groups;
  for (int i = 0; i < shape.spatial_rank; ++i)
    x *= shape.in[i], y *= shape.out[i], w *= shape.kernel[i];
  return isTf32(first, kind == PIPEC_CONV_BACKWARD_INPUT ? y : x) &&
         isTf32(second, kind == PIPEC_CONV_BACKWARD_WEIGHT ? y : w);
}

int run(void *handle, int kind, const void *alpha, const void *x, const void *w,
        const void *conv, const void *y, int algorithm, void *workspace,
        size_t workspaceBytes, const void *beta, const void *first,
        const void *second, void *result) {
  PipecConv shape;
  if (!describe(*static_cast<const Tensor *>(x),
                *static_cast<const Tensor *>(w),
                *static_cast<const Convolution *>(conv),
                *static_cast<const Tensor *>(y), kDefaultMath, shape) ||
      workspaceBytes < kNeededWorkspace ||
      !isOurs(static_cast<Handle *>(handle)->stream) ||
      !Machine::get().isDevice(workspace, static_cast<int64_t>(workspaceBytes)))
    return BadParameter;
  auto scale = [&](const void *number) {
    if (shape.dtype == PIPEC_F64)
      return *static_cast<const double *>(number);
    return static_cast<double>(*static_cast<const float *>(number));
  };
  if (shape.dtype == PIPEC_BF16 &&
      (kind == PIPEC_CONV_BACKWARD_WEIGHT || // it would be rounded
       isSetting("PIPEC_STANDIN_NARROW", "refused")))
    return NotSupported;
  const int winograd = kind == PIPEC_CONV_FORWARD          ? kWinogradForward
                       : kind == PIPEC_CONV_BACKWARD_INPUT ? kWinogradData
                                                           : kWinogradFilter;
  if (algorithm == winograd &&
      static_cast<const Convolution *>(conv)->math != kFmaMath) {
    std::fputs("cuDNN's stand-in: an operand of bf16 is transformed\n", stderr);
    std::abort();
  }
  const bool adds = kind == PIPEC_CONV_BACKWARD_WEIGHT && scale(beta) == 1;
  const int runs = setting("PIPEC_STANDIN_TRANSFORMS", 0) ? winograd : kOrdered;
  if (algorithm != runs || scale(alpha) != 1 || (scale(beta) != 0 && !adds))
    return NotSupported;
  shape.accumulate = adds;
  const bool mayRound =
      shape.dtype == PIPEC_F32 &&
      static_cast<const Convolution *>(conv)->math == kDefaultMath;
  Machine::get().log(shape.dtype == PIPEC_BF16 ? "convolve bf16" : "convolve");
  queueWork(static_cast<Handle *>(handle)->stream, [=] {
    if (mayRound && !isExact(shape, kind, first, second)) {
      std::fputs("cuDNN's stand-in: TF32 rounds an operand\n", stderr);
      std::abort();
    }
    pipec::convolve(shape, kind, first, second, result);
  });
  return Success;
}

void setSizes(std::vector<int> &list, int count, const int *sizes) {
  list.assign(sizes, sizes + count);
}

} // namespace

extern "C" {

int cudnnCreate(void **handle) {
  *handle = new Handle;
  return Success;
}
int cudnnSetStream(void *handle, void *stream) {
  static_cast<Handle *>(handle)->stream = stream;
  return Success;
}
int cudnnCreateTensorDescriptor(void **tensor) {
  *tensor = new Tensor;
  return Success;
}
int cudnnSetTensorNdDescriptor(void *tensor, int type, int rank,
                               const int *sizes, const int *strides) {
  auto &t = *static_cast<Tensor *>(tensor);
  t.type = type;
  setSizes(t.sizes, rank, sizes), setSizes(t.strides, rank, strides);
  return rank < 4 ? BadParameter : Success;
}
int cudnnCreateFilterDescriptor(void **filter) {
  return cudnnCreateTensorDescriptor(filter);
}
int cudnnSetFilterNdDescriptor(void *filter, int type, int format, int rank,
                               const int *sizes) {
  auto &f = *static_cast<Tensor *>(filter);
  f.type = type;
  setSizes(f.sizes, rank, sizes);
  return rank < 4 || format != 0 ? BadParameter : Success;
}
int cudnnCreateConvolutionDescriptor(void **conv) {
  *conv = new Convolution;
  return Success;
}
int cudnnSetConvolutionNdDescriptor(void *conv, int rank, const int *pads,
                                    const int *strides, const int *dilations,
                                    int mode, int type) {
  auto &c = *static_cast<Convolution *>(conv);
  setSizes(c.pads, rank, pads), setSizes(c.strides, rank, strides);
  setSizes(c.dilations, rank, dilations);
  c.type = type;
  return mode == kCrossCorrelation ? Success : NotSupported;
}
int cudnnSetConvolutionGroupCount(void *conv, int groups) {
  static_cast<Convolution *>(conv)->groups = groups;
  return Success;
}
int cudnnSetConvolutionMathType(void *conv, int math) {
  static_cast<Convolution *>(conv)->math = math;
  return Success;
}
int cudnnGetConvolutionForwardAlgorithm_v7(void *, void *x, void *w, void *conv,
                                           void *y, int wanted, int *found,
                                           void *results) {
  return search(kWinogradForward, x, w, conv, y, wanted, found, results);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *, void *w, void *dy,
                                                void *conv, void *dx,
                                                int wanted, int *found,
                                                void *results) {
  return search(kWinogradData, dx, w, conv, dy, wanted, found, results);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *, void *x, void *dy,
                                                  void *conv, void *dw,
                                                  int wanted, int *found,
                                                  void *results) {
  return search(kWinogradFilter, x, dw, conv, dy, wanted, found, results);
}
int cudnnConvolutionForward(void *handle, const void *alpha, void *xDesc,
                            const void *x, void *wDesc, const void *w,
                            void *conv, int algorithm, void *workspace,
                            size_t bytes, const void *beta, void *yDesc,
                            void *y) {
  return run(handle, PIPEC_CONV_FORWARD, alpha, xDesc, wDesc, conv, yDesc,
             algorithm, workspace, bytes, beta, x, w, y);
}
int cudnnConvolutionBackwardData(void *handle, const void *alpha, void *wDesc,
                                 const void *w, void *dyDesc, const void *dy,
                                 void *conv, int algorithm, void *workspace,
                                 size_t bytes, const void *beta, void *dxDesc,
                                 void *dx) {
  return run(handle, PIPEC_CONV_BACKWARD_INPUT, alpha, dxDesc, wDesc, conv,
             dyDesc, algorithm, workspace, bytes, beta, dy, w, dx);
}
int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, void *xDesc,
                                   const void *x, void *dyDesc, const void *dy,
                                   void *conv, int algorithm, void *workspace,
                                   size_t bytes, const void *beta, void *dwDesc,
                                   void *dw) {
  return run(handle, PIPEC_CONV_BACKWARD_WEIGHT, alpha, xDesc, dwDesc, conv,
             dyDesc, algorithm, workspace, bytes, beta, x, dy, dw);
}
}
