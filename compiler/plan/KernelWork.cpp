#include "compiler/plan/KernelWork.h"

#include <algorithm>
#include <cmath>

namespace pipec::plan {

namespace {

// Of runtime/kernels/cpu/gemm and level. Wider tiles than these only change
// what the fit makes of the amounts.
constexpr int64_t kTileRows = 4, kLanes = 8, kTileVectors = 3;
/// Products of at most so many multiply-adds go through k in short blocks.
constexpr int64_t kSmallWork = int64_t(1) << 22, kShortDepth = 16, kDepth = 384;
/// Fewer multiply-adds stay on one thread.
constexpr double kLeastShared = 65536;
/// With at most so many rows the right operand is read in place.
constexpr int64_t kFewRows = 16;

int64_t divideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks of k of a product of so many multiply-adds.
int64_t depthBlocks(int64_t work, int64_t k) {
  return divideUp(k, work <= kSmallWork ? kShortDepth : kDepth);
}

} // namespace

const std::map<std::string, std::vector<std::string>> &kernelAmounts() {
  static const std::map<std::string, std::vector<std::string>> amounts = [] {
    std::map<std::string, std::vector<std::string>> all;
    all["product"] = {"call",           "matrix",         "step",
                      "narrow step",    "tile",           "edge",
                      "result",         "rows packed",    "rows turned",
                      "columns packed", "columns turned", "columns in place"};
    for (const char *pass : {"forward", "backward-input", "backward-weight"})
      for (const char *path : {"direct", "product", "rows", "winograd"})
        all[std::string("convolution-") + pass + "-" + path] = {
            "call", "step", "tile", "window", "weight", "input", "output"};
    return all;
  }();
  return amounts;
}

KernelWork productWork(const ProductShape &s) {
  const int64_t work = s.batch * s.m * s.n * s.k;
  const double batch = static_cast<double>(s.batch);
  const double rows = divideUp(s.m, kTileRows);
  const int64_t vectors = divideUp(s.n, kLanes);
  const int64_t panels = std::max<int64_t>(1, divideUp(vectors, kTileVectors));
  const double blocks = static_cast<double>(depthBlocks(work, s.k));
  const double m = s.m, n = s.n, k = s.k;
  // Panels share the vectors evenly; one vector alone does not fill the
  // pipeline of multiply-adds.
  const bool narrow = 2 * vectors < 3 * panels;
  const int64_t over = s.n % kLanes;
  const double edge =
      over ? static_cast<double>(vectors / panels * kLanes - kLanes + over) : 0;
  const double packedA = batch * m * k, packedB = batch * n * k;
  const bool inPlace = s.m <= kFewRows && !s.transposeB;
  return {"product",
          {1, batch, batch * rows * vectors * k, narrow ? batch * rows * k : 0,
           batch * rows * panels * blocks, batch * m * edge * blocks,
           batch * m * n * blocks, s.transposeA ? 0 : packedA,
           s.transposeA ? packedA : 0, s.transposeB || inPlace ? 0 : packedB,
           s.transposeB ? packedB : 0, inPlace ? packedB : 0},
          m * n * (k + 1) * batch >= kLeastShared};
}

KernelWork convolutionWork(const ConvolutionShape &s, ConvolutionPass pass,
                           const std::string &path) {
  static const std::map<ConvolutionPass, const char *> names = {
      {ConvolutionPass::Forward, "forward"},
      {ConvolutionPass::BackwardInput, "backward-input"},
      {ConvolutionPass::BackwardWeight, "backward-weight"}};
  const int64_t c = s.channels / s.groups, o = s.outputs / s.groups;
  const int64_t in = s.images * s.in, out = s.images * s.out;
  // The product that it amounts to, for each group.
  int64_t m = o, n = out, k = c * s.taps;
  if (pass == ConvolutionPass::BackwardInput)
    m = c, n = in, k = o * s.taps;
  if (pass == ConvolutionPass::BackwardWeight)
    m = o, n = c * s.taps, k = out;
  const double groups = static_cast<double>(s.groups);
  const double rows = groups * static_cast<double>(divideUp(m, kTileRows));
  const double step = rows * static_cast<double>(divideUp(n, kLanes) * k);
  const double tiles =
      rows * static_cast<double>(divideUp(n, kLanes * kTileVectors) *
                                 depthBlocks(m * n * k, k));
  return {std::string("convolution-") + names.at(pass) + "-" + path,
          {1, step, tiles, groups * static_cast<double>(n * k),
           groups * static_cast<double>(c * o * s.taps),
           groups * static_cast<double>(in * c),
           groups * static_cast<double>(out * o)},
          static_cast<double>(m * n * (k + 1)) >= kLeastShared};
}

} // namespace pipec::plan
