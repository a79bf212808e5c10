//===- Convolutions.cpp - convolutions by cuDNN ---------------------------===//
#include "runtime/device/cuda/Convolutions.h"
#include "runtime/device/cuda/CudnnLibrary.h"
#include "runtime/device/cuda/Scratch.h"
#include "support/Failure.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pipec::cuda {
namespace {

using namespace cudnn;

constexpr int kMostAlgorithms = 16;
/// Of memory that an algorithm works in: cuDNN puts fast ones first that take
/// several times the tensors'.
constexpr size_t kMostWorkspace = size_t(512) << 20;

bool transforms(int kind, int algorithm) {
  const unsigned which = kind == PIPEC_CONV_FORWARD          ? kTransformForward
                         : kind == PIPEC_CONV_BACKWARD_INPUT ? kTransformData
                                                             : kTransformFilter;
  return (which >> algorithm) & 1;
}
/// Whether TF32 would round an operand.
bool isExact(const PipecConv &shape) {
  return shape.dtype == PIPEC_F32 && !shape.narrow;
}
std::string keyOf(const PipecConv &shape, int kind) {
  PipecConv plain = shape;
  plain.prepared = nullptr;
  plain.accumulate = 0;
  std::string key(reinterpret_cast<const char *>(&plain), sizeof plain);
  key += static_cast<char>(kind);
  return key;
}
/// The same numbers as f32.
PipecConv widenedOf(const PipecConv &shape) {
  PipecConv wide = shape;
  wide.dtype = PIPEC_F32;
  wide.narrow = 1;
  return wide;
}

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
  /// The first is the one that is run; those that were refused are gone.
  std::vector<Found> algorithms;
  int status = 0;           ///< of the last search or run that failed
  bool wantsMemory = false; ///< an algorithm did not get it
};

namespace {
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

/// Finds the plan's algorithms, those that do not take too much first, in the
/// order of expected speed.
void Convolutions::search(const PipecConv &shape, int kind, Plan &plan) {
  const Entries &dnn = entries();
  Found found[kMostAlgorithms];
  int count = 0;
  if (kind == PIPEC_CONV_FORWARD)
    plan.status = dnn.searchForward(library->handle, plan.x, plan.w, plan.conv,
                                    plan.y, kMostAlgorithms, &count, found);
  else if (kind == PIPEC_CONV_BACKWARD_INPUT)
    plan.status = dnn.searchData(library->handle, plan.w, plan.y, plan.conv,
                                 plan.x, kMostAlgorithms, &count, found);
  else
    plan.status = dnn.searchFilter(library->handle, plan.x, plan.y, plan.conv,
                                   plan.w, kMostAlgorithms, &count, found);
  if (plan.status)
    return;
  auto excess = [](const Found &one) {
    return one.bytes > kMostWorkspace ? one.bytes : 0;
  };
  // What is made of numbers of bf16 by a transform has more bits than bf16 and
  // TF32: there it is taken in f32 only, and behind all others.
  auto isLast = [&](const Found &one) {
    return shape.narrow && transforms(kind, one.algorithm);
  };
  auto comesFirst = [&](const Found &one, const Found &other) {
    return std::pair(isLast(one), excess(one)) <
           std::pair(isLast(other), excess(other));
  };
  auto &all = plan.algorithms;
  for (Found *next = found; next < found + count; ++next) {
    if (next->status || next->determinism != kDeterministic ||
        (shape.dtype == PIPEC_BF16 && transforms(kind, next->algorithm)))
      continue;
    if (isLast(*next))
      next->math = kFmaMath;
    all.insert(std::upper_bound(all.begin(), all.end(), *next, comesFirst),
               *next);
  }
}

/// Prepares the plan's first algorithm. An algorithm is one with the products
/// that it was found with: cuDNN offers several for one descriptor, and refuses
/// others or runs another kernel. Where TF32 would round it is not taken.
void Convolutions::choose(const PipecConv &shape, Plan &plan) {
  auto &left = plan.algorithms;
  while (!left.empty() && !library->workspace.reserve(left.front().bytes)) {
    plan.wantsMemory = true;
    left.erase(left.begin());
  }
  if (left.empty())
    return;
  if (isExact(shape))
    left.front().math = kFmaMath;
  check(entries().setMath(plan.conv, left.front().math),
        "cudnnSetConvolutionMathType");
}

Convolutions::Plan &Convolutions::planOf(const PipecConv &shape, int kind) {
  auto [entry, isNew] = library->plans.emplace(keyOf(shape, kind), Plan());
  Plan &plan = entry->second;
  if (!isNew)
    return plan;
  describe(shape, plan);
  search(shape, kind, plan);
  choose(shape, plan);
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
  const int algorithm = plan.algorithms.front().algorithm;
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
  if (!library->widened.reserve(
          static_cast<size_t>(resultAt + resultCount * sizeof(float))))
    Driver::get().check(kOutOfMemory, "memory for cuDNN");
  char *wide = reinterpret_cast<char *>(library->widened.memory);
  convert(/*widens=*/true, wide, first, firstCount);
  convert(/*widens=*/true, wide + secondAt, second, sizes.w);
  convolve(widenedOf(shape), kind, wide, wide + secondAt, wide + resultAt);
  convert(/*widens=*/false, result, wide + resultAt, resultCount);
}

std::string Convolutions::chosen(const PipecConv &shape, int kind) const {
  if (!library)
    return "";
  const auto found = library->plans.find(keyOf(shape, kind));
  if (found == library->plans.end())
    return "";
  const auto &left = found->second.algorithms;
  if (!left.empty())
    return "algorithm " + std::to_string(left.front().algorithm) + ", math " +
           std::to_string(left.front().math);
  return shape.dtype == PIPEC_BF16 ? "as f32, " + chosen(widenedOf(shape), kind)
                                   : "";
}

void Convolutions::convolve(const PipecConv &shape, int kind, const char *first,
                            const char *second, char *result) {
  if (!library)
    library = std::make_unique<Library>(stream);
  Plan &plan = planOf(shape, kind);
  // A search may promise what cannot be run; the first step finds out.
  while (!plan.algorithms.empty()) {
    plan.status = queue(shape, kind, plan, first, second, result);
    if (!plan.status)
      return;
    plan.algorithms.erase(plan.algorithms.begin());
    choose(shape, plan);
  }
  // Gradients of weights are wide.
  if (shape.dtype == PIPEC_BF16 && kind != PIPEC_CONV_BACKWARD_WEIGHT)
    return convolveWidened(shape, kind, first, second, result);
  if (plan.wantsMemory)
    Driver::get().check(kOutOfMemory, "memory for cuDNN");
  throw Failure(Exit::Unavailable,
                "cuDNN has no deterministic algorithm for a convolution of " +
                    std::to_string(shape.c) + " to " + std::to_string(shape.o) +
                    " channels (status " + std::to_string(plan.status) +
                    "); install a newer cuDNN");
}

} // namespace pipec::cuda
