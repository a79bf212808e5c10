//===- Convolutions.cpp - convolutions by cuDNN ---------------------------===//
#include "runtime/device/cuda/Convolutions.h"
#include "runtime/device/cuda/Cudnn.h"
#include "runtime/device/cuda/Library.h"
#include "support/Failure.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace pipec::cuda {
namespace {

using namespace cudnn;

constexpr int kMostAlgorithms = 16;
/// Of memory that an algorithm works in: cuDNN puts fast ones first that take
/// several times the tensors'.
constexpr size_t kMostWorkspace = size_t(512) << 20;

#define ENTRIES "runtime/device/cuda/Cudnn.def"
#include "runtime/device/cuda/Entries.inc"

const Entries &entries() {
  static const Entries loaded(
      "cuDNN", "CUDNN_LOGLEVEL_DBG=1",
      {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"},
      "install cuDNN (pip install nvidia-cudnn-cu13), and name its folder in "
      "LD_LIBRARY_PATH");
  return loaded;
}

void check(int status, const char *what) { entries().check(status, what); }

/// Sizes along axes as cuDNN wants them: at least two spatial ones.
std::vector<int> axes(std::vector<int> leading, const int64_t *spatial,
                      int rank, int padding) {
  if (rank == 1)
    leading.push_back(padding);
  for (int i = 0; i < rank; ++i)
    leading.push_back(static_cast<int>(spatial[i]));
  return leading;
}

} // namespace

struct Convolutions::Plan {
  void *x = nullptr, *w = nullptr, *y = nullptr, *conv = nullptr;
  Found algorithm{};
  bool widened = false; ///< cuDNN has none of bf16
};

namespace {
/// Memory that grows while plans are made: before anything is recorded.
struct Scratch {
  Address memory = 0;
  size_t bytes = 0;

  ~Scratch() {
    if (memory)
      Driver::get().release(memory);
  }
  void reserve(size_t wanted) {
    if (wanted <= bytes)
      return;
    const Driver &cuda = Driver::get();
    if (memory) // waits for the device
      cuda.check(cuda.release(memory), "cuMemFree");
    memory = 0;
    bytes = 0;
    cuda.check(cuda.allocate(&memory, wanted), "memory for cuDNN");
    bytes = wanted;
  }
};

/// Elements of input, weights and output, and where each begins in f32.
struct Sizes {
  int64_t x, w, y;

  explicit Sizes(const PipecConv &shape)
      : x(shape.n * shape.c), w(shape.o * (shape.c / shape.groups)),
        y(shape.n * shape.o) {
    for (int i = 0; i < shape.spatial_rank; ++i)
      x *= shape.in[i], w *= shape.kernel[i], y *= shape.out[i];
  }
};

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }
} // namespace

struct Convolutions::Library {
  void *handle = nullptr;
  std::map<std::string, Plan> plans; ///< by the bytes of shape and kind
  Scratch workspace, widened;

  explicit Library(Stream stream) {
    check(entries().create(&handle), "cudnnCreate");
    check(entries().setStream(handle, stream), "cudnnSetStream");
  }
};

Convolutions::Convolutions(Stream stream, Convert convert)
    : stream(stream), convert(std::move(convert)) {}
Convolutions::~Convolutions() = default;

int64_t Convolutions::bytes() const {
  return library ? static_cast<int64_t>(library->workspace.bytes +
                                        library->widened.bytes)
                 : 0;
}

void Convolutions::describe(const PipecConv &shape, Plan &plan) {
  const Entries &dnn = entries();
  const bool isNarrow = shape.dtype == PIPEC_BF16;
  const int sums = shape.dtype == PIPEC_F64 ? kDouble : kFloat;
  const int type = isNarrow ? kBfloat16 : sums;
  const int rank = shape.spatial_rank;
  auto tensor = [&](void *&result, int64_t channels, const int64_t *spatial) {
    const std::vector<int> sizes =
        axes({static_cast<int>(shape.n), static_cast<int>(channels)}, spatial,
             rank, 1);
    std::vector<int> strides(sizes.size(), 1);
    for (size_t i = sizes.size() - 1; i-- > 0;)
      strides[i] = strides[i + 1] * sizes[i + 1];
    check(dnn.createTensor(&result), "cudnnCreateTensorDescriptor");
    check(dnn.setTensor(result, type, static_cast<int>(sizes.size()),
                        sizes.data(), strides.data()),
          "cudnnSetTensorNdDescriptor");
  };
  tensor(plan.x, shape.c, shape.in);
  tensor(plan.y, shape.o, shape.out);
  const std::vector<int> filter = axes(
      {static_cast<int>(shape.o), static_cast<int>(shape.c / shape.groups)},
      shape.kernel, rank, 1);
  check(dnn.createFilter(&plan.w), "cudnnCreateFilterDescriptor");
  check(dnn.setFilter(plan.w, type, kRowMajor, static_cast<int>(filter.size()),
                      filter.data()),
        "cudnnSetFilterNdDescriptor");
  const std::vector<int> pads = axes({}, shape.pad_lo, rank, 0),
                         strides = axes({}, shape.stride, rank, 1),
                         dilations = axes({}, shape.dilation, rank, 1);
  check(dnn.createConv(&plan.conv), "cudnnCreateConvolutionDescriptor");
  check(dnn.setConv(plan.conv, static_cast<int>(pads.size()), pads.data(),
                    strides.data(), dilations.data(), kCrossCorrelation, sums),
        "cudnnSetConvolutionNdDescriptor");
  check(dnn.setGroups(plan.conv, shape.groups),
        "cudnnSetConvolutionGroupCount");
  check(dnn.setMath(plan.conv, isNarrow       ? kTensorMath
                               : shape.narrow ? kDefaultMath
                                              : kFmaMath),
        "cudnnSetConvolutionMathType");
}

/// Finds the plan's algorithm; the status, or -1 where none will do.
int Convolutions::search(int kind, Plan &plan) {
  const Entries &dnn = entries();
  Found found[kMostAlgorithms];
  int count = 0, status = 0;
  if (kind == PIPEC_CONV_FORWARD)
    status = dnn.searchForward(library->handle, plan.x, plan.w, plan.conv,
                               plan.y, kMostAlgorithms, &count, found);
  else if (kind == PIPEC_CONV_BACKWARD_INPUT)
    status = dnn.searchData(library->handle, plan.w, plan.y, plan.conv, plan.x,
                            kMostAlgorithms, &count, found);
  else
    status = dnn.searchFilter(library->handle, plan.x, plan.y, plan.conv,
                              plan.w, kMostAlgorithms, &count, found);
  if (status)
    return status;
  // The first that does not take too much, else the one that takes the least.
  const Found *chosen = nullptr;
  for (const Found *next = found; next < found + count; ++next) {
    if (next->status || next->determinism != kDeterministic)
      continue;
    if (!chosen ||
        (chosen->bytes > kMostWorkspace && next->bytes < chosen->bytes))
      chosen = next;
  }
  if (!chosen)
    return -1;
  plan.algorithm = *chosen;
  library->workspace.reserve(chosen->bytes);
  return 0;
}

Convolutions::Plan &Convolutions::planOf(const PipecConv &shape, int kind) {
  PipecConv plain = shape;
  plain.prepared = nullptr;
  plain.accumulate = 0;
  std::string key(reinterpret_cast<const char *>(&plain), sizeof plain);
  key += static_cast<char>(kind);
  auto [entry, isNew] = library->plans.emplace(key, Plan());
  Plan &plan = entry->second;
  if (!isNew)
    return plan;
  describe(shape, plan);
  const int status = search(kind, plan);
  plan.widened = status && shape.dtype == PIPEC_BF16 &&
                 kind != PIPEC_CONV_BACKWARD_WEIGHT; // whose result is wide
  if (status && !plan.widened)
    throw Failure(Exit::Unavailable,
                  "cuDNN has no deterministic algorithm for a convolution of " +
                      std::to_string(shape.c) + " to " +
                      std::to_string(shape.o) + " channels (status " +
                      std::to_string(std::max(status, 0)) +
                      "); install a newer cuDNN");
  return plan;
}

int Convolutions::queue(const PipecConv &shape, int kind, const Plan &plan,
                        const char *first, const char *second, char *result) {
  const float one = 1, zero = 0;
  const double wideOne = 1, wideZero = 0;
  const bool wide = shape.dtype == PIPEC_F64;
  const void *alpha = wide ? static_cast<const void *>(&wideOne) : &one;
  const void *beta = wide ? static_cast<const void *>(&wideZero) : &zero;
  if (kind == PIPEC_CONV_BACKWARD_WEIGHT && shape.accumulate)
    beta = alpha;
  const Entries &dnn = entries();
  auto *workspace = reinterpret_cast<void *>(library->workspace.memory);
  const size_t bytes = library->workspace.bytes;
  const int algorithm = plan.algorithm.algorithm;
  if (kind == PIPEC_CONV_FORWARD)
    return dnn.forward(library->handle, alpha, plan.x, first, plan.w, second,
                       plan.conv, algorithm, workspace, bytes, beta, plan.y,
                       result);
  if (kind == PIPEC_CONV_BACKWARD_INPUT)
    return dnn.backwardData(library->handle, alpha, plan.w, second, plan.y,
                            first, plan.conv, algorithm, workspace, bytes, beta,
                            plan.x, result);
  return dnn.backwardFilter(library->handle, alpha, plan.x, first, plan.y,
                            second, plan.conv, algorithm, workspace, bytes,
                            beta, plan.w, result);
}

/// The same numbers as f32, which TF32 holds, and their sums rounded once.
void Convolutions::convolveWidened(const PipecConv &shape, int kind,
                                   const char *first, const char *second,
                                   char *result) {
  const Sizes sizes(shape);
  const bool isForward = kind == PIPEC_CONV_FORWARD;
  const int64_t firstCount = isForward ? sizes.x : sizes.y,
                resultCount = isForward ? sizes.y : sizes.x,
                secondAt = aligned(firstCount * sizeof(float)),
                resultAt = secondAt + aligned(sizes.w * sizeof(float));
  library->widened.reserve(
      static_cast<size_t>(resultAt + resultCount * sizeof(float)));
  char *wide = reinterpret_cast<char *>(library->widened.memory);
  convert(/*widens=*/true, wide, first, firstCount);
  convert(/*widens=*/true, wide + secondAt, second, sizes.w);
  PipecConv inner = shape;
  inner.dtype = PIPEC_F32;
  inner.narrow = 1;
  convolve(inner, kind, wide, wide + secondAt, wide + resultAt);
  convert(/*widens=*/false, result, wide + resultAt, resultCount);
}

void Convolutions::convolve(const PipecConv &shape, int kind, const char *first,
                            const char *second, char *result) {
  if (!library)
    library = std::make_unique<Library>(stream);
  Plan &plan = planOf(shape, kind);
  if (!plan.widened) {
    const int status = queue(shape, kind, plan, first, second, result);
    if (!status)
      return;
    // A search may promise what cannot be run; the first step finds out.
    if (shape.dtype != PIPEC_BF16)
      return check(status, "cuDNN's convolution");
    plan.widened = true;
  }
  convolveWidened(shape, kind, first, second, result);
}

} // namespace pipec::cuda
