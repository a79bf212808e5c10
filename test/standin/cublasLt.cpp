//===- cublasLt.cpp - a stand-in for libcublasLt --------------------------===//
//
// Products of f32, f64 and bf16 by the CPU's kernels, which the program
// exports. Each search offers an algorithm first that it does not run after
// all.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cuda/CublasLt.h"
#include "runtime/kernels/cpu/Kernels.h"
#include "runtime/program/Memory.h"
#include "test/standin/Machine.h"
#include "test/unit/target/Multiply.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

using namespace pipec::standin;
using namespace pipec::cublas;

namespace {

// cublasStatus_t.
enum Status { Success = 0, InvalidValue = 7, NotSupported = 15 };
constexpr uint32_t kNoEpilogue = 1; // CUBLASLT_EPILOGUE_DEFAULT
constexpr size_t kNeededWorkspace = 4096;
// What a heuristic gives, in this order: one that is refused when it is
// checked, one that is refused when it is run, and one that works.
constexpr uint64_t kUnchecked = 0x706968, kRefused = 0x706969,
                   kAlgorithm = 0x706970;
// With PIPEC_STANDIN_FASTER=1 that one is slow, and others follow: one that
// adds up in another order and does not say so, one that says so, one with the
// same bits.
constexpr uint64_t kOther = 0x706971, kSplit = 0x706972, kFast = 0x706973;

bool isRun(uint64_t algorithm) {
  return algorithm == kAlgorithm || algorithm == kOther ||
         algorithm == kSplit || algorithm == kFast;
}

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t count = 1;
  int64_t stride = 0;
};
struct Product {
  int compute, scale;
  int32_t transposeA = 0, transposeB = 0;
  uint32_t epilogue = kNoEpilogue;
  const void *bias = nullptr;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256}; ///< of A, B, C and D
};
template <typename T> void set(T &field, const void *value, size_t bytes) {
  std::memcpy(&field, value, std::min(bytes, sizeof field));
}

/// What the four layouts say, as a product of the CPU's library: row-major, so
/// that first and second operand change places. False when they disagree.
bool describe(const Product &product, const Layout &a, const Layout &b,
              const Layout &d, PipecMatmul &shape) {
  auto rows = [](const Layout &l, bool transposed) {
    return static_cast<int64_t>(transposed ? l.columns : l.rows);
  };
  auto columns = [](const Layout &l, bool transposed) {
    return static_cast<int64_t>(transposed ? l.rows : l.columns);
  };
  const bool ta = product.transposeA, tb = product.transposeB;
  shape = {};
  shape.dtype = a.type == kReal64     ? PIPEC_F64
                : a.type == kRealBf16 ? PIPEC_BF16
                                      : PIPEC_F32;
  shape.wide = a.type == kRealBf16 && d.type == kReal32;
  shape.transpose_a = tb, shape.transpose_b = ta;
  shape.m = static_cast<int64_t>(d.columns);
  shape.n = static_cast<int64_t>(d.rows);
  shape.k = columns(a, ta);
  shape.lda = b.ld, shape.ldb = a.ld, shape.ldc = d.ld;
  shape.batch_rank = 1;
  shape.batch[0] = d.count;
  shape.stride_a[0] = b.stride, shape.stride_b[0] = a.stride;
  shape.stride_c[0] = d.stride;
  const bool isF64 = a.type == kReal64;
  return (isF64 || a.type == kReal32 || a.type == kRealBf16) &&
         a.type == b.type && (b.type == d.type || shape.wide) &&
         product.compute == (isF64 ? kCompute64 : kCompute32) &&
         product.scale == (isF64 ? kReal64 : kReal32) &&
         rows(a, ta) == shape.n && rows(b, tb) == shape.k &&
         columns(b, tb) == shape.m && a.count == d.count &&
         b.count == d.count && a.ld >= static_cast<int64_t>(a.rows) &&
         b.ld >= static_cast<int64_t>(b.rows) &&
         d.ld >= static_cast<int64_t>(d.rows);
}

/// A bias has the result's type and its alignment; there is none in f64.
bool isEpilogue(const Product &product, const Layout &d) {
  if (product.epilogue == kNoEpilogue)
    return true;
  const uintptr_t bytes = d.type == kRealBf16 ? 2 : 4;
  return product.epilogue == kAddBias && product.bias && d.type != kReal64 &&
         reinterpret_cast<uintptr_t>(product.bias) % bytes == 0;
}

} // namespace

extern "C" {

const char *cublasLtGetStatusString(int status) {
  return status == NotSupported ? "not supported" : "another status";
}

int cublasLtCreate(void **handle) {
  static char one;
  *handle = &one;
  return Success;
}
int cublasLtMatmulDescCreate(void **desc, int compute, int scale) {
  *desc = new Product{compute, scale};
  return Success;
}
int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *value,
                                   size_t bytes) {
  auto &product = *static_cast<Product *>(desc);
  if (attribute == kTransposeA)
    set(product.transposeA, value, bytes);
  else if (attribute == kTransposeB)
    set(product.transposeB, value, bytes);
  else if (attribute == kEpilogue)
    set(product.epilogue, value, bytes);
  else if (attribute == kBiasPointer)
    set(product.bias, value, bytes);
  else
    return InvalidValue;
  return Success;
}
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows,
                               uint64_t columns, int64_t ld) {
  *layout = new Layout{type, rows, columns, ld};
  return Success;
}
int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute,
                                     const void *value, size_t bytes) {
  auto &l = *static_cast<Layout *>(layout);
  if (attribute == kBatchCount)
    set(l.count, value, bytes);
  else if (attribute == kBatchStride)
    set(l.stride, value, bytes);
  else
    return InvalidValue;
  return Success;
}
int cublasLtMatmulPreferenceCreate(void **preference) {
  *preference = new Preference;
  return Success;
}
int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute,
                                         const void *value, size_t bytes) {
  if (attribute == kMaxWorkspace)
    set(static_cast<Preference *>(preference)->workspace, value, bytes);
  if (attribute == kReductions)
    set(static_cast<Preference *>(preference)->reductions, value, bytes);
  if (attribute >= kAlignmentA && attribute < kAlignmentA + 4)
    set(static_cast<Preference *>(preference)
            ->alignments[attribute - kAlignmentA],
        value, bytes);
  return Success;
}
int cublasLtMatmulPreferenceDestroy(void *preference) {
  delete static_cast<Preference *>(preference);
  return Success;
}
int cublasLtMatmulAlgoGetHeuristic(void *, void *desc, void *a, void *b, void *,
                                   void *d, void *preference, int wanted,
                                   void *results, int *found) {
  PipecMatmul shape;
  *found = 0;
  if (wanted < 1 ||
      !describe(*static_cast<Product *>(desc), *static_cast<Layout *>(a),
                *static_cast<Layout *>(b), *static_cast<Layout *>(d), shape))
    return InvalidValue;
  const auto &limits = *static_cast<Preference *>(preference);
  // An algorithm that relies on more than every arena has would be another one
  // where something else is in memory: other bits.
  const bool isByChance =
      std::any_of(std::begin(limits.alignments), std::end(limits.alignments),
                  [](uint32_t one) { return one > pipec::plan::kAlignment; });
  if (limits.workspace < kNeededWorkspace || isByChance ||
      limits.reductions != kReduceInComputeType)
    return NotSupported;
  std::vector<uint64_t> offered = {kUnchecked, kAlgorithm};
  if (setting("PIPEC_STANDIN_PROMISE", 0))
    offered.insert(offered.begin() + 1, kRefused);
  if (setting("PIPEC_STANDIN_FASTER", 0))
    offered.insert(offered.end(), {kOther, kSplit, kFast});
  for (uint64_t one : offered) {
    if (*found == wanted)
      break;
    Found result{};
    result.algorithm[0] = one;
    for (int i = 0; i < 4; ++i) // what it may rely on
      result.algorithm[1 + i] = limits.alignments[i];
    result.workspaceBytes = kNeededWorkspace;
    std::memcpy(static_cast<Found *>(results) + *found, &result, sizeof result);
    ++*found;
  }
  const int64_t size = shape.dtype == PIPEC_BF16  ? 2
                       : shape.dtype == PIPEC_F64 ? 8
                                                  : 4;
  Machine::get().log(
      "heuristic for rows of " + std::to_string(shape.lda * size) + ", " +
      std::to_string(shape.ldb * size) + ", " +
      std::to_string(shape.ldc * (shape.wide ? 4 : size)) + " bytes");
  return Success;
}
int cublasLtMatmulAlgoCheck(void *, void *desc, void *a, void *b, void *,
                            void *d, const void *algorithm, void *result) {
  PipecMatmul shape;
  uint64_t chosen[5];
  std::memcpy(chosen, algorithm, sizeof chosen);
  const auto &product = *static_cast<Product *>(desc);
  if ((!isRun(chosen[0]) && chosen[0] != kRefused) ||
      !describe(product, *static_cast<Layout *>(a), *static_cast<Layout *>(b),
                *static_cast<Layout *>(d), shape) ||
      !isEpilogue(product, *static_cast<Layout *>(d)))
    return InvalidValue;
  const char *wish = std::getenv("PIPEC_STANDIN_EPILOGUES");
  if (product.epilogue != kNoEpilogue && wish && std::strcmp(wish, "0") == 0)
    return NotSupported;
  Found found{};
  found.workspaceBytes = kNeededWorkspace;
  std::memcpy(result, &found, sizeof found);
  return Success;
}
int cublasLtMatmulAlgoConfigGetAttribute(const void *algorithm, int attribute,
                                         void *value, size_t bytes,
                                         size_t *written) {
  uint64_t chosen;
  std::memcpy(&chosen, algorithm, sizeof chosen);
  const int32_t parts =
      attribute == kAlgorithmParts && chosen == kSplit ? 2 : 1;
  *written = sizeof parts;
  if (bytes < sizeof parts)
    return InvalidValue;
  std::memcpy(value, &parts, sizeof parts);
  return Success;
}
int cublasLtMatmul(void *, void *desc, const void *alpha, const void *a,
                   void *aLayout, const void *b, void *bLayout,
                   const void *beta, const void *c, void *, void *d,
                   void *dLayout, const void *algorithm, void *workspace,
                   size_t workspaceBytes, void *stream) {
  PipecMatmul shape;
  uint64_t chosen[5];
  std::memcpy(chosen, algorithm, sizeof chosen);
  if (setting("PIPEC_STANDIN_PRODUCTS", 1) == 0)
    return NotSupported;
  const void *pointers[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<uintptr_t>(pointers[i]) % chosen[1 + i])
      return InvalidValue;
  if (!isRun(chosen[0]) || !isOurs(stream) ||
      reinterpret_cast<uintptr_t>(workspace) % 256 ||
      workspaceBytes < kNeededWorkspace || c != d ||
      !describe(*static_cast<Product *>(desc), *static_cast<Layout *>(aLayout),
                *static_cast<Layout *>(bLayout),
                *static_cast<Layout *>(dLayout), shape) ||
      !isEpilogue(*static_cast<Product *>(desc),
                  *static_cast<Layout *>(dLayout)) ||
      !Machine::get().isDevice(workspace, static_cast<int64_t>(workspaceBytes)))
    return InvalidValue;
  auto scale = [&](const void *number) {
    if (shape.dtype == PIPEC_F64)
      return *static_cast<const double *>(number);
    return static_cast<double>(*static_cast<const float *>(number));
  };
  if (scale(alpha) != 1 || (scale(beta) != 0 && scale(beta) != 1))
    return NotSupported;
  shape.accumulate = scale(beta) == 1;
  // What it is now, as on a device: the descriptor is set anew for each call.
  const void *bias = nullptr;
  if (static_cast<Product *>(desc)->epilogue == kAddBias)
    bias = static_cast<Product *>(desc)->bias;
  if (bias && (shape.accumulate || !Machine::get().isDevice(bias, shape.n * 2)))
    return NotSupported;
  const bool isSlow =
      chosen[0] == kAlgorithm && setting("PIPEC_STANDIN_FASTER", 0);
  Machine::get().log(bias                      ? "multiply, add a bias"
                     : chosen[0] == kFast      ? "multiply fast"
                     : chosen[0] == kAlgorithm ? "multiply"
                                               : "multiply otherwise");
  queueWork(stream, [=] {
    std::memset(workspace, 0xff, kNeededWorkspace);
    if (isSlow)
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    if (bias)
      pipec::multiplyBiased(shape, b, a, bias, d);
    else
      pipec::multiply(shape, b, a, d);
    if (chosen[0] == kOther || chosen[0] == kSplit)
      static_cast<char *>(d)[0] ^= 1;
  });
  return Success;
}
}
