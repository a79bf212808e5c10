//===- Attention.cpp - attention by cuDNN ---------------------------------===//
//
// Attention is a graph of operations to cuDNN, of which it knows two as one
// kernel each ("SDPA"): softmax(scale q k') v with the logarithm of each row's
// sum, and the three gradients from that. Their form is that of NVIDIA's
// cudnn-frontend 1.18 (MIT): of the forms of the gradients the one that
// multiplies dq from stored gradients of scores, as the other adds it up in any
// order.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cuda/Attention.h"
#include "runtime/CallNames.h"
#include "runtime/device/cuda/CudnnGraph.h"
#include "runtime/device/cuda/Scratch.h"
#include "support/Environment.h"
#include "support/Failure.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

namespace pipec::cuda {
namespace {

using namespace cudnn;
using Sizes = OperationGraph::Sizes;

constexpr int kHopper = 9;
/// Of memory that cuDNN works in: gradients of scores.
constexpr size_t kMostWorkspace = size_t(512) << 20;
constexpr unsigned kOne = 0x3f800000; ///< f32's 1

/// What a run is given beside its tensors.
struct Numbers {
  float scale = 1, one = 1, lowest = -std::numeric_limits<float>::infinity();
};

/// Of a tensor with rows as long as a head; `turned`: its transpose.
struct View {
  Sizes sizes, strides;
};
View viewOf(const PipecAttention &shape, PipecAttentionTensor which,
            bool turned = false) {
  const bool ofKeys =
      which == PIPEC_ATTENTION_K || which == PIPEC_ATTENTION_V ||
      which == PIPEC_ATTENTION_DK || which == PIPEC_ATTENTION_DV;
  const int64_t rows = ofKeys ? shape.keys : shape.queries,
                *step = shape.stride[which];
  if (turned)
    return {{shape.batch, shape.heads, shape.size, rows},
            {step[0], step[1], 1, step[2]}};
  return {{shape.batch, shape.heads, rows, shape.size},
          {step[0], step[1], step[2], 1}};
}

/// A graph, and which of its tensors is which.
struct Built {
  OperationGraph graph;
  int64_t tensors[PIPEC_ATTENTION_ARGUMENTS] = {};
  int64_t scale = 0, one = 0, lowest = 0;
  int64_t delta = 0; ///< row sums of dy * y, in memory

  explicit Built(const PipecAttention &shape)
      : shape(shape),
        scores{shape.batch, shape.heads, shape.queries, shape.keys},
        rows{shape.batch, shape.heads, shape.queries, 1} {
    shape.gradient ? buildGradient() : buildForward();
  }

private:
  int64_t add(PipecAttentionTensor which, bool turned = false) {
    const View view = viewOf(shape, which, turned);
    return tensors[which] = graph.memory(kBfloat16, view.sizes, view.strides);
  }
  int64_t ofScores(int type = kFloat) { return graph.between(type, scores); }

  /// scale q k'.
  int64_t scaledProducts(int64_t q, int64_t keysTurned) {
    const int64_t product = ofScores(), scaled = ofScores();
    graph.multiply(q, keysTurned, product);
    graph.pointwise(kMultiply, product, scale, scaled);
    return scaled;
  }
  /// `x`, and -inf where a row does not see a key.
  int64_t masked(int64_t x) {
    if (!shape.causal)
      return x;
    lowest = graph.number();
    const int64_t row = ofScores(kInt32), column = ofScores(kInt32),
                  isSeen = ofScores(kBoolean), result = ofScores();
    graph.indices(2, x, row);
    graph.indices(3, x, column);
    graph.pointwise(kIsGreaterOrEqual, row, column, isSeen);
    graph.select(x, lowest, isSeen, result);
    return result;
  }

  void buildForward() {
    scale = graph.number();
    const int64_t q = add(PIPEC_ATTENTION_Q), k = add(PIPEC_ATTENTION_K, true),
                  v = add(PIPEC_ATTENTION_V), y = add(PIPEC_ATTENTION_Y),
                  tops = tensors[PIPEC_ATTENTION_TOPS] =
                      graph.memory(kFloat, rows, OperationGraph::dense(rows));
    const int64_t score = masked(scaledProducts(q, k));
    const int64_t weights = ofScores(kBfloat16), top = ofRows(),
                  below = ofScores(), power = ofScores(), sum = ofRows(),
                  logarithm = ofRows();
    graph.reduce(kLargest, score, top);
    graph.pointwise(kSubtract, score, top, below);
    graph.pointwise(kExp, below, power);
    graph.reduce(kSumUp, power, sum);
    graph.pointwise(kLog, sum, logarithm);
    graph.pointwise(kAdd, top, logarithm, tops);
    graph.pointwise(kDivide, power, sum, weights);
    graph.multiply(weights, v, y);
  }
  int64_t ofRows() { return graph.between(kFloat, rows); }

  /// The numbers of scores by columns.
  int64_t turned(int64_t x) {
    const Sizes sizes = {shape.batch, shape.heads, shape.keys, shape.queries};
    const int64_t area = shape.queries * shape.keys;
    const int64_t result = graph.between(
        kBfloat16, sizes, {shape.heads * area, area, 1, shape.keys});
    graph.reshape(x, result);
    return result;
  }

  void buildGradient() {
    scale = graph.number(), one = graph.number();
    const int64_t tops = tensors[PIPEC_ATTENTION_TOPS] =
        graph.memory(kFloat, rows, OperationGraph::dense(rows));
    const int64_t q = add(PIPEC_ATTENTION_Q), k = add(PIPEC_ATTENTION_K, true),
                  v = add(PIPEC_ATTENTION_V, true), y = add(PIPEC_ATTENTION_Y),
                  dy = add(PIPEC_ATTENTION_DY), dq = add(PIPEC_ATTENTION_DQ),
                  dk = add(PIPEC_ATTENTION_DK), dv = add(PIPEC_ATTENTION_DV);
    const View ofY = viewOf(shape, PIPEC_ATTENTION_Y),
               ofK = viewOf(shape, PIPEC_ATTENTION_K);
    const int64_t products = graph.between(kFloat, ofY.sizes), sums = ofRows();
    delta = graph.memory(kFloat, rows, OperationGraph::dense(rows));
    graph.pointwise(kMultiply, dy, y, products);
    graph.reduce(kSumUp, products, sums);
    graph.pointwise(kMultiply, sums, one, delta);
    const int64_t score = scaledProducts(q, k), below = ofScores();
    graph.pointwise(kSubtract, score, tops, below);
    const int64_t seen = masked(below), weights = ofScores();
    graph.pointwise(kExp, seen, weights);
    graph.multiply(turned(weights), dy, dv);
    const int64_t ofWeights = ofScores(), centred = ofScores(),
                  ofSeen = ofScores(), ofProducts = ofScores();
    graph.multiply(dy, v, ofWeights);
    graph.pointwise(kSubtract, ofWeights, delta, centred);
    graph.pointwise(kMultiply, centred, weights, ofSeen);
    graph.pointwise(kMultiply, ofSeen, scale, ofProducts);
    graph.multiply(turned(ofProducts), q, dk);
    const int64_t keys = graph.between(kFloat, ofK.sizes, ofK.strides);
    graph.reshape(k, keys);
    graph.multiply(ofProducts, keys, dq);
  }

  PipecAttention shape;
  Sizes scores, rows;
};

int64_t rowsOf(const PipecAttention &shape) {
  return shape.batch * shape.heads * shape.queries;
}

} // namespace

struct Attention::Planned {
  Built built;
  std::optional<GraphPlan> plan;
  Numbers numbers;
  bool isQueued = false;
};

struct Attention::Library {
  void *handle = nullptr;
  std::map<std::string, std::unique_ptr<Planned>> plans; ///< by shapes' bytes
  /// Of rows' numbers that nobody wants, then of cuDNN.
  Scratch rows, workspace;

  explicit Library(Stream stream) {
    check(entries().create(&handle), "cudnnCreate");
    check(entries().setStream(handle, stream), "cudnnSetStream");
  }
};

Attention::Attention(Stream stream, int major)
    : stream(stream),
      isWanted(major == kHopper && !isWished("PIPEC_CUDNN_ATTENTION", "off")) {}
Attention::~Attention() = default;

int64_t Attention::bytes() const {
  return library ? static_cast<int64_t>(library->rows.bytes +
                                        library->workspace.bytes)
                 : 0;
}

int64_t Attention::kinds() const {
  int64_t count = 0;
  if (library)
    for (const auto &[key, planned] : library->plans)
      count += planned->isQueued;
  return count;
}

/// What the answer for forward is asked of: these sizes, however they lie.
static PipecAttention forwardOf(const PipecAttention &shape) {
  PipecAttention forward = shape;
  forward.gradient = forward.calls = 0;
  for (auto &step : forward.stride)
    step[0] = step[1] = step[2] = 0;
  auto dense = [&](int which, int64_t rows) {
    int64_t *step = forward.stride[which];
    step[2] = shape.size, step[1] = rows * step[2];
    step[0] = shape.heads * step[1];
  };
  dense(PIPEC_ATTENTION_Q, shape.queries),
      dense(PIPEC_ATTENTION_Y, shape.queries);
  dense(PIPEC_ATTENTION_K, shape.keys), dense(PIPEC_ATTENTION_V, shape.keys);
  return forward;
}

Attention::Planned &Attention::plannedOf(const PipecAttention &shape) {
  const std::string key(reinterpret_cast<const char *>(&shape), sizeof shape);
  std::unique_ptr<Planned> &known = library->plans[key];
  if (known)
    return *known;
  known = std::make_unique<Planned>(Planned{Built(shape), {}, {}});
  known->numbers.scale = static_cast<float>(shape.scale);
  known->plan = known->built.graph.plan(library->handle, kMostWorkspace);
  if (known->plan && !library->workspace.reserve(known->plan->workspace))
    known->plan.reset();
  if (known->plan && !library->rows.reserve(static_cast<size_t>(rowsOf(shape)) *
                                            sizeof(float)))
    known->plan.reset();
  return *known;
}

bool Attention::attends(const PipecAttention &shape) {
  if (!isWanted)
    return false;
  if (!library) {
    try {
      library = std::make_unique<Library>(stream);
    } catch (const Failure &) { // then the stage's own kernels do it
      isWanted = false;
      return false;
    }
  }
  if (!plannedOf(forwardOf(shape)).plan)
    return false;
  if (plannedOf(shape).plan)
    return true;
  if (shape.gradient)
    return false;
  // Gradients would count on it.
  throw Failure(Exit::Unavailable,
                "cuDNN has no " + callName(shape) +
                    " for tensors that lie as here, but for others; "
                    "PIPEC_CUDNN_ATTENTION=off runs the stage's own kernels");
}

void Attention::attend(const PipecAttention &shape, char *const *at) {
  Planned &planned = plannedOf(shape);
  planned.isQueued = true;
  const Built &built = planned.built;
  auto *ofRows = reinterpret_cast<void *>(library->rows.memory);
  std::vector<std::pair<int64_t, void *>> places;
  for (int i = 0; i < PIPEC_ATTENTION_ARGUMENTS; ++i)
    if (built.tensors[i])
      places.push_back(
          {built.tensors[i], at[i] ? static_cast<void *>(at[i]) : ofRows});
  for (auto [number, value] :
       {std::pair(built.scale, &planned.numbers.scale),
        std::pair(built.one, &planned.numbers.one),
        std::pair(built.lowest, &planned.numbers.lowest)})
    if (number)
      places.push_back({number, value});
  if (built.delta)
    places.push_back({built.delta, ofRows});
  check(cudnn::run(library->handle, *planned.plan, places,
                   reinterpret_cast<void *>(library->workspace.memory)),
        "cudnnBackendExecute of attention");
  if (!shape.gradient && at[PIPEC_ATTENTION_SHARES])
    Driver::get().check(
        Driver::get().fillWords(addressOf(at[PIPEC_ATTENTION_SHARES]), kOne,
                                static_cast<size_t>(rowsOf(shape)), stream),
        "cuMemsetD32Async");
}

} // namespace pipec::cuda
