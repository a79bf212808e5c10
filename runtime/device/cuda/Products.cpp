//===- Products.cpp - matrix products by cuBLASLt -------------------------===//
#include "runtime/device/cuda/Products.h"
#include "runtime/device/cuda/CublasLt.h"
#include "runtime/device/cuda/Library.h"
#include "runtime/device/cuda/Trials.h"
#include "runtime/program/Memory.h"
#include "support/Environment.h"
#include "support/Failure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pipec::cuda {
namespace {

using namespace cublas;

#define ENTRIES "runtime/device/cuda/CublasLt.def"
#include "runtime/device/cuda/Entries.inc"

const Entries &entries() {
  static const Entries loaded(
      "cuBLASLt", "CUBLASLT_LOG_LEVEL=1",
      {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
      "install CUDA's cuBLAS (pip install nvidia-cublas), and name its "
      "folder in LD_LIBRARY_PATH");
  return loaded;
}

void check(int status, const char *what) {
  if (!status)
    return;
  auto *text = entries().findIfThere<StatusText>("cublasLtGetStatusString");
  entries().fail(status, what, text ? text(status) : "");
}

/// What is asked for of the algorithms of a shape, of which the library may
/// refuse some after all.
constexpr int kTries = 8;
/// Algorithms are tried for products of so many operations, on which a device
/// spends some 10 us.
constexpr int64_t kLeastTuned = 10'000'000'000;

/// The largest power of two that divides an address, as far as every arena has
/// it: an algorithm that wants more would depend on what else is in memory, and
/// with it the bits of a sum on where stages are cut.
uint32_t alignmentOf(const char *address) {
  uint32_t alignment = plan::kAlignment;
  while (reinterpret_cast<uintptr_t>(address) % alignment)
    alignment /= 2;
  return alignment;
}

} // namespace

/// A product with at most one index over matrices, in the library's view:
/// column-major, so that first and second operand change places.
struct Products::Strided {
  int32_t dtype, wide, transposeA, transposeB;
  int64_t m, n, k, lda, ldb, ldc;
  int64_t count, strideA, strideB, strideC;

  /// "bf16 to f32, a' b', 4 matrices, rows of 64, 10, 10, aligned to 64, 16,
  /// 64": what an algorithm is looked for by, beside the sizes. `alignments`
  /// are in the library's order.
  std::string details(const uint32_t (&alignments)[4]) const {
    std::string text = dtype == PIPEC_BF16  ? "bf16"
                       : dtype == PIPEC_F64 ? "f64"
                                            : "f32";
    text += wide ? " to f32, a" : ", a";
    text += transposeA ? "' b" : " b";
    text += transposeB ? "', " : ", ";
    return text + std::to_string(count) + " matrices, rows of " +
           std::to_string(lda) + ", " + std::to_string(ldb) + ", " +
           std::to_string(ldc) + ", aligned to " +
           std::to_string(alignments[1]) + ", " +
           std::to_string(alignments[0]) + ", " + std::to_string(alignments[3]);
  }
};

struct Products::Plan {
  void *desc = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  /// The first is the one that is run; those that were refused are gone.
  std::vector<Found> algorithms;
  bool works = true; ///< with a bias
};

struct Products::Library {
  void *handle = nullptr;
  Address workspace = 0;
  std::map<std::string, Plan> plans; ///< by the bytes of shape and alignments

  Library() {
    check(entries().create(&handle), "cublasLtCreate");
    const Driver &cuda = Driver::get();
    cuda.check(cuda.allocate(&workspace, kWorkspaceBytes),
               "memory for cuBLASLt");
  }
  ~Library() { Driver::get().release(workspace); }
};

Products::Products(Stream stream, std::function<void()> wait)
    : stream(stream), wait(std::move(wait)) {
  addsBiases = !isWished("PIPEC_EPILOGUES", "off");
  leastTuned = isWished("PIPEC_TUNE_PRODUCTS", "off")   ? INT64_MAX
               : isWished("PIPEC_TUNE_PRODUCTS", "all") ? 0
                                                        : kLeastTuned;
}
Products::~Products() = default;

int64_t Products::bytes() const { return library ? kWorkspaceBytes : 0; }

void Products::open() {
  if (!library)
    library = std::make_unique<Library>();
}

/// The descriptors of a product.
void Products::describe(const Strided &shape, Plan &plan) {
  const Entries &blas = entries();
  const bool isF64 = shape.dtype == PIPEC_F64;
  const int scale = isF64 ? kReal64 : kReal32;
  const int operand = shape.dtype == PIPEC_BF16 ? kRealBf16 : scale;
  check(blas.createMatmul(&plan.desc, isF64 ? kCompute64 : kCompute32, scale),
        "cublasLtMatmulDescCreate");
  const int32_t first = shape.transposeB, second = shape.transposeA;
  check(blas.setMatmul(plan.desc, kTransposeA, &first, sizeof first),
        "cublasLtMatmulDescSetAttribute");
  check(blas.setMatmul(plan.desc, kTransposeB, &second, sizeof second),
        "cublasLtMatmulDescSetAttribute");
  auto layout = [&](void *&result, int type, int64_t rows, int64_t columns,
                    int64_t ld, int64_t stride) {
    check(blas.createLayout(&result, type, static_cast<uint64_t>(rows),
                            static_cast<uint64_t>(columns), ld),
          "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<int32_t>(shape.count);
    check(blas.setLayout(result, kBatchCount, &count, sizeof count),
          "cublasLtMatrixLayoutSetAttribute");
    check(blas.setLayout(result, kBatchStride, &stride, sizeof stride),
          "cublasLtMatrixLayoutSetAttribute");
  };
  layout(plan.a, operand, first ? shape.k : shape.n, first ? shape.n : shape.k,
         shape.ldb, shape.strideB);
  layout(plan.b, operand, second ? shape.m : shape.k,
         second ? shape.k : shape.m, shape.lda, shape.strideA);
  layout(plan.c, shape.wide ? kReal32 : operand, shape.n, shape.m, shape.ldc,
         shape.strideC);
}

/// Whether the library says that it runs the algorithm for the plan's product,
/// in the memory that there is.
bool Products::takes(const Plan &plan, const Found &candidate) const {
  Found result{};
  return entries().checkAlgorithm(library->handle, plan.desc, plan.a, plan.b,
                                  plan.c, plan.c, &candidate.algorithm,
                                  &result) == 0 &&
         result.state == 0 &&
         result.workspaceBytes <= static_cast<size_t>(kWorkspaceBytes);
}

Products::Plan &Products::planOf(const Strided &shape, const char *a,
                                 const char *b, char *c, bool accumulate) {
  const uint32_t alignments[] = {alignmentOf(b), alignmentOf(a), alignmentOf(c),
                                 alignmentOf(c)};
  std::string key(reinterpret_cast<const char *>(&shape), sizeof shape);
  key.append(reinterpret_cast<const char *>(alignments), sizeof alignments);
  auto [entry, isNew] = library->plans.emplace(key, Plan());
  Plan &plan = entry->second;
  if (!isNew)
    return plan;
  const Entries &blas = entries();
  describe(shape, plan);
  void *preference = nullptr;
  check(blas.createPreference(&preference), "cublasLtMatmulPreferenceCreate");
  const uint64_t most = kWorkspaceBytes;
  check(blas.setPreference(preference, kMaxWorkspace, &most, sizeof most),
        "cublasLtMatmulPreferenceSetAttribute");
  check(blas.setPreference(preference, kReductions, &kReduceInComputeType,
                           sizeof kReduceInComputeType),
        "cublasLtMatmulPreferenceSetAttribute");
  for (int i = 0; i < 4; ++i)
    check(blas.setPreference(preference, kAlignmentA + i, &alignments[i],
                             sizeof alignments[i]),
          "cublasLtMatmulPreferenceSetAttribute");
  int count = 0;
  Found found[kTries]{};
  const int status =
      blas.heuristic(library->handle, plan.desc, plan.a, plan.b, plan.c, plan.c,
                     preference, kTries, found, &count);
  blas.destroyPreference(preference);
  auto &all = plan.algorithms;
  std::vector<Found> doubtful; // that it says it does not run: the last tries
  for (const Found *next = found; !status && next < found + count; ++next)
    if (!next->state)
      (takes(plan, *next) ? all : doubtful).push_back(*next);
  all.insert(all.end(), doubtful.begin(), doubtful.end());
  if (all.empty())
    throw Failure(
        Exit::Unavailable,
        "cuBLASLt has no algorithm for a product of " +
            std::to_string(shape.m) + " x " + std::to_string(shape.k) + " x " +
            std::to_string(shape.n) + " (status " + std::to_string(status) +
            "; " + shape.details(alignments) + "); install a newer cuBLAS");
  if (!accumulate)
    chooseFastest(shape, plan, a, b, c);
  return plan;
}

/// Puts the fastest algorithm first of those that add up in the order of the
/// library's choice: as they say, and as their results show, in c, where that
/// is all theirs.
void Products::chooseFastest(const Strided &shape, Plan &plan, const char *a,
                             const char *b, char *c) {
  auto &all = plan.algorithms;
  const int64_t element = shape.wide || shape.dtype == PIPEC_F32 ? 4
                          : shape.dtype == PIPEC_F64             ? 8
                                                                 : 2,
                matrix = shape.m * shape.n, numbers = matrix * shape.count;
  const bool isDense =
      shape.ldc == shape.n && (shape.count == 1 || shape.strideC == matrix);
  if (all.size() < 2 || !isDense || 2 * numbers * shape.k < leastTuned)
    return;
  auto orderOf = [&](const Found &one) {
    std::array<int32_t, 3> order{};
    size_t written = 0;
    for (size_t i = 0; i < order.size(); ++i)
      entries().algorithmConfig(
          &one.algorithm,
          std::array{kAlgorithmId, kAlgorithmParts, kAlgorithmReduction}[i],
          &order[i], sizeof order[i], &written);
    return order;
  };
  std::vector<size_t> alike;
  for (size_t i = 0; i < all.size(); ++i)
    if (i == 0 || (orderOf(all[i]) == orderOf(all[0]) && takes(plan, all[i])))
      alike.push_back(i);
  Trials trials(stream, wait, c, numbers * element);
  const size_t best =
      alike[trials.fastest(alike.size(), [&](size_t which, char *to) {
        return queue(shape, plan, all[alike[which]], a, b, to,
                     /*accumulate=*/false);
      })];
  std::rotate(all.begin(), all.begin() + static_cast<ptrdiff_t>(best),
              all.begin() + static_cast<ptrdiff_t>(best) + 1);
  tunedKinds += best > 0;
}

/// The product's own algorithm, so that the sum has the bits that it has
/// without the bias, if that takes one; or the fastest of those that have them.
Products::Plan &Products::biasedPlanOf(const Strided &shape, const char *a,
                                       const char *b, const char *bias,
                                       char *c) {
  const uint32_t alignments[] = {alignmentOf(b), alignmentOf(a), alignmentOf(c),
                                 alignmentOf(bias)};
  std::string key(reinterpret_cast<const char *>(&shape), sizeof shape);
  key.append(reinterpret_cast<const char *>(alignments), sizeof alignments);
  key += "biased";
  auto [entry, isNew] = library->plans.emplace(key, Plan());
  Plan &plan = entry->second;
  const Entries &blas = entries();
  if (isNew) {
    describe(shape, plan);
    check(blas.setMatmul(plan.desc, kEpilogue, &kAddBias, sizeof kAddBias),
          "cublasLtMatmulDescSetAttribute");
  }
  check(blas.setMatmul(plan.desc, kBiasPointer, &bias, sizeof bias),
        "cublasLtMatmulDescSetAttribute");
  if (!isNew)
    return plan;
  plan.algorithms = planOf(shape, a, b, c, /*accumulate=*/false).algorithms;
  plan.works = takes(plan, plan.algorithms.front());
  if (plan.works)
    chooseFastest(shape, plan, a, b, c);
  ++(plan.works ? biasKinds.added : biasKinds.refused);
  return plan;
}

/// The library's status.
int Products::queue(const Strided &shape, const Plan &plan,
                    const Found &algorithm, const char *a, const char *b,
                    char *c, bool accumulate) {
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool isF64 = shape.dtype == PIPEC_F64;
  const void *alpha = isF64 ? static_cast<const void *>(&one64) : &one;
  const void *beta =
      accumulate ? alpha : (isF64 ? static_cast<const void *>(&zero64) : &zero);
  return entries().matmul(
      library->handle, plan.desc, alpha, b, plan.a, a, plan.b, beta, c, plan.c,
      c, plan.c, &algorithm.algorithm,
      reinterpret_cast<void *>(library->workspace), kWorkspaceBytes, stream);
}

void Products::strided(const Strided &shape, const char *a, const char *b,
                       char *c, bool accumulate) {
  Plan &plan = planOf(shape, a, b, c, accumulate);
  // A search may promise what cannot be run; the first step finds out.
  while (const int status =
             queue(shape, plan, plan.algorithms.front(), a, b, c, accumulate)) {
    if (plan.algorithms.size() == 1)
      check(status, "cublasLtMatmul");
    plan.algorithms.erase(plan.algorithms.begin());
  }
}

namespace {

using Loop = Products::Loop;

int64_t sizeOf(int32_t dtype) {
  return dtype == PIPEC_F64 ? 8 : dtype == PIPEC_BF16 ? 2 : 4;
}

/// The loops of a product, neighbours that are one loop united.
std::vector<Loop> loopsOf(const PipecMatmul &shape) {
  std::vector<Loop> loops;
  for (int32_t i = 0; i < shape.batch_rank; ++i) {
    const Loop inner{shape.batch[i], shape.stride_a[i], shape.stride_b[i],
                     shape.stride_c[i]};
    if (inner.count == 1)
      continue;
    if (!loops.empty()) {
      Loop &outer = loops.back();
      auto steps = [&](int64_t Loop::*stride) {
        return outer.*stride == inner.*stride * inner.count;
      };
      if (steps(&Loop::a) && steps(&Loop::b) && steps(&Loop::c)) {
        outer = {outer.count * inner.count, inner.a, inner.b, inner.c};
        continue;
      }
    }
    loops.push_back(inner);
  }
  return loops;
}

/// The longest loop that keeps its results apart is the library's.
Loop takeLongest(std::vector<Loop> &loops) {
  auto best = loops.end();
  for (auto loop = loops.begin(); loop != loops.end(); ++loop)
    if (loop->c != 0 && (best == loops.end() || loop->count > best->count))
      best = loop;
  Loop own{1, 0, 0, 0};
  if (best != loops.end()) {
    own = *best;
    loops.erase(best);
  }
  return own;
}

} // namespace

Products::Strided Products::stridedOf(const PipecMatmul &shape,
                                      const Loop &own) {
  return {shape.dtype, shape.wide, shape.transpose_a, shape.transpose_b,
          shape.m,     shape.n,    shape.k,           shape.lda,
          shape.ldb,   shape.ldc,  own.count,         own.a,
          own.b,       own.c};
}

bool Products::addsBias(const PipecMatmul &shape, const char *a, const char *b,
                        const char *bias, char *c) {
  std::vector<Loop> loops = loopsOf(shape);
  const Loop own = takeLongest(loops);
  // Of results with one column there are versions of the library that leave
  // the bias out of some.
  if (!addsBiases || !loops.empty() || shape.accumulate || shape.k == 0 ||
      shape.m == 0 || shape.n <= 1 || own.count == 0)
    return false;
  open();
  return biasedPlanOf(stridedOf(shape, own), a, b, bias, c).works;
}

bool Products::multiplyBiased(const PipecMatmul &shape, const char *a,
                              const char *b, const char *bias, char *c) {
  std::vector<Loop> loops = loopsOf(shape);
  const Strided inner = stridedOf(shape, takeLongest(loops));
  Plan &plan = biasedPlanOf(inner, a, b, bias, c);
  if (queue(inner, plan, plan.algorithms.front(), a, b, c,
            /*accumulate=*/false)) {
    // Another algorithm would be another sum than without the bias.
    plan.works = false;
    --biasKinds.added, ++biasKinds.refused;
  }
  return plan.works;
}

void Products::multiply(const PipecMatmul &shape, const char *a, const char *b,
                        char *c) {
  open();
  std::vector<Loop> loops = loopsOf(shape);
  const Loop own = takeLongest(loops);
  const int64_t size = sizeOf(shape.dtype),
                resultSize = shape.wide ? sizeof(float) : size;
  const Strided inner = stridedOf(shape, own);
  int64_t total = 1;
  for (const Loop &loop : loops)
    total *= loop.count;
  if (shape.m == 0 || shape.n == 0 || own.count == 0)
    return;
  for (int64_t number = 0; number < total; ++number) {
    int64_t rest = number, atA = 0, atB = 0, atC = 0;
    bool again = shape.accumulate; // what is summed over adds to itself
    for (size_t i = loops.size(); i-- > 0;) {
      const int64_t index = rest % loops[i].count;
      rest /= loops[i].count;
      atA += index * loops[i].a, atB += index * loops[i].b;
      atC += index * loops[i].c;
      again |= loops[i].c == 0 && index > 0;
    }
    char *result = c + atC * resultSize;
    if (shape.k > 0) {
      strided(inner, a + atA * size, b + atB * size, result, again);
      continue;
    }
    const Driver &cuda = Driver::get();
    for (int64_t i = 0; !again && i < own.count; ++i)
      cuda.check(cuda.fillRows(addressOf(result + i * own.c * resultSize),
                               static_cast<size_t>(shape.ldc * resultSize), 0,
                               static_cast<size_t>(shape.n * resultSize),
                               static_cast<size_t>(shape.m), stream),
                 "cuMemsetD2D8Async");
  }
}

} // namespace pipec::cuda
