#include "compiler/plan/KernelWork.h"

#include <algorithm>
#include <cmath>

namespace pipec::plan {

namespace {

// Of runtime/kernels/cpu/gemm.
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

/// What the tiles of a product of m x k and k x n do, in `blocks` of k.
struct TileSums {
  double steps = 0;    ///< multiply-adds of vectors
  double operands = 0; ///< loads for them
  double rounds = 0;   ///< of the loops over k
  double tiles = 0, results = 0;
  double edge = 0; ///< elements of results that are no whole vectors
};

TileSums tileSums(int64_t m, int64_t n, int64_t k, int64_t blocks,
                  const ProductTile &tile) {
  // Panels share the vectors of a row evenly.
  const int64_t vectors = divideUp(n, tile.lanes);
  const int64_t panels = std::max<int64_t>(1, divideUp(vectors, tile.vectors));
  const int64_t wide = vectors % panels, each = vectors / panels;
  const std::pair<int64_t, int64_t> heights[] = {{m / tile.rows, tile.rows},
                                                 {1, m % tile.rows}};
  const std::pair<int64_t, int64_t> widths[] = {{wide, each + 1},
                                                {panels - wide, each}};
  TileSums sums;
  for (auto [high, rows] : heights)
    for (auto [many, width] : widths) {
      if (rows == 0 || width == 0)
        continue;
      const double count = static_cast<double>(high * many);
      sums.steps += count * static_cast<double>(rows * width * k);
      sums.operands += count * static_cast<double>((rows + width) * k);
      sums.rounds += count * static_cast<double>(k);
      sums.tiles += count * static_cast<double>(blocks);
      sums.results += count * static_cast<double>(rows * width * blocks);
    }
  if (n % tile.lanes)
    sums.edge = static_cast<double>(
        m * ((each - 1) * tile.lanes + n % tile.lanes) * blocks);
  return sums;
}

} // namespace

const std::map<std::string, std::vector<std::string>> &kernelAmounts() {
  static const std::map<std::string, std::vector<std::string>> amounts = [] {
    std::map<std::string, std::vector<std::string>> all;
    all["product"] = {"call",
                      "matrix",
                      "step",
                      "operand",
                      "round",
                      "tile",
                      "result",
                      "edge",
                      "rows packed",
                      "rows turned",
                      "columns packed",
                      "columns turned",
                      "columns in place"};
    all["product-bf16"] = all["product"];
    for (const char *pass : {"forward", "backward-input", "backward-weight"}) {
      const std::string name = std::string("convolution-") + pass + "-";
      all[name + "product"] = {"call", "step",   "operand", "round",
                               "tile", "result", "window",  "stretch",
                               "put",  "weight", "input",   "output"};
      all[name + "rows"] = {"call", "step", "term", "line", "input", "output"};
      for (const char *path : {"direct", "winograd"})
        all[name + path] = {"call",   "step",  "tile",  "window",
                            "weight", "input", "output"};
    }
    all["generated"] = {"call",     "round",   "scalar", "vector",
                        "division", "move",    "load",   "store",
                        "strided",  "library", "touched"};
    all["copy"] = {"call", "row", "contiguous", "strided", "transposed"};
    all["gather"] = {"call", "row", "byte"};
    all["scatter"] = {"call", "row", "byte", "cleared"};
    all["max-pool"] = {"call",   "plane",  "line",  "vector",
                       "scalar", "window", "border"};
    all["max-pool-grad"] = {"call", "plane", "in", "out"};
    for (const char *pool : {"avg-pool", "avg-pool-grad"})
      all[pool] = {"call", "plane", "in", "out", "tap"};
    return all;
  }();
  return amounts;
}

KernelWork productWork(const ProductShape &s, const ProductTile &tile) {
  const int64_t work = s.batch * s.m * s.n * s.k;
  const double batch = static_cast<double>(s.batch);
  const TileSums sums = tileSums(s.m, s.n, s.k, depthBlocks(work, s.k), tile);
  const double m = s.m, n = s.n, k = s.k;
  const double packedA = batch * m * k, packedB = batch * n * k;
  const bool inPlace = s.m <= kFewRows && !s.transposeB;
  return {s.bf16 ? "product-bf16" : "product",
          {1, batch, batch * sums.steps, batch * sums.operands,
           batch * sums.rounds, batch * sums.tiles, batch * sums.results,
           batch * sums.edge, s.transposeA ? 0 : packedA,
           s.transposeA ? packedA : 0, s.transposeB || inPlace ? 0 : packedB,
           s.transposeB ? packedB : 0, inPlace ? packedB : 0},
          m * n * (k + 1) * batch >= kLeastShared};
}

namespace {

/// The product that a convolution or gradient amounts to, for each group; of a
/// gradient with strides `parts` of them.
struct AsProduct {
  int64_t m, n, k, parts = 1, period = 0;
};

AsProduct asProduct(const ConvolutionShape &s, ConvolutionPass pass) {
  const int64_t c = s.channels / s.groups, o = s.outputs / s.groups;
  switch (pass) {
  case ConvolutionPass::Forward:
    return {o, s.images * s.out, c * s.taps};
  case ConvolutionPass::BackwardInput:
    return {c, std::max<int64_t>(1, s.images * s.in / s.steps),
            std::max<int64_t>(1, o * s.taps / s.steps), s.steps};
  case ConvolutionPass::BackwardWeight:
    return {o, c * s.taps, s.images * s.out, 1, s.out};
  }
  return {};
}

/// One long product of windows that are gathered.
std::vector<double> productAmounts(const ConvolutionShape &s,
                                   const AsProduct &p,
                                   const ProductTile &tile) {
  const int64_t work = s.images * s.out * (s.outputs / s.groups) *
                       (s.channels / s.groups) * s.taps;
  const int64_t blocks = p.period ? s.images * depthBlocks(work, p.period)
                                  : depthBlocks(work, p.k);
  const TileSums sums = tileSums(p.m, p.n, p.k, blocks, tile);
  const double times = static_cast<double>(s.groups * p.parts);
  const double window = times * static_cast<double>(p.n * p.k);
  const auto row = static_cast<double>(std::max<int64_t>(1, s.outRow));
  // Windows are gathered line by line, a panel at a time; results are put back
  // alike, where they are no matrix.
  const double stretches =
      times * static_cast<double>(p.k) *
      (static_cast<double>(p.n) / row +
       static_cast<double>(divideUp(p.n, tile.lanes * tile.vectors)));
  const double puts = p.period ? 0
                               : times * static_cast<double>(p.m * blocks) *
                                     static_cast<double>(p.n) / row;
  return {1,
          times * sums.steps,
          times * sums.operands,
          times * sums.rounds,
          times * sums.tiles,
          times * sums.results,
          window,
          stretches,
          puts,
          static_cast<double>(s.channels * s.outputs * s.taps / s.groups),
          static_cast<double>(s.images * s.in * s.channels),
          static_cast<double>(s.images * s.out * s.outputs)};
}

/// Rows of a few channels, added up tap by tap.
std::vector<double> rowAmounts(const ConvolutionShape &s, ConvolutionPass pass,
                               const ProductTile &tile) {
  const bool input = pass == ConvolutionPass::BackwardInput;
  const int64_t row = std::max<int64_t>(1, input ? s.inRow : s.outRow);
  const double lines = static_cast<double>(
      s.images * (input ? s.in * s.channels : s.out * s.outputs) / row);
  const double terms =
      lines *
      static_cast<double>((input ? s.outputs : s.channels) / s.groups * s.taps);
  return {1,
          terms * static_cast<double>(divideUp(row, tile.lanes)),
          terms,
          lines,
          static_cast<double>(s.images * s.in * s.channels),
          static_cast<double>(s.images * s.out * s.outputs)};
}

std::vector<double> otherAmounts(const ConvolutionShape &s,
                                 const AsProduct &p) {
  constexpr int64_t kRows = 4, kLanes = 8, kVectors = 3;
  const double groups = static_cast<double>(s.groups);
  const double rows = groups * static_cast<double>(divideUp(p.m, kRows));
  return {1,
          rows * static_cast<double>(divideUp(p.n, kLanes) * p.k),
          rows * static_cast<double>(divideUp(p.n, kLanes * kVectors) *
                                     depthBlocks(p.m * p.n * p.k, p.k)),
          groups * static_cast<double>(p.n * p.k),
          static_cast<double>(s.channels * s.outputs * s.taps / s.groups),
          static_cast<double>(s.images * s.in * s.channels),
          static_cast<double>(s.images * s.out * s.outputs)};
}

} // namespace

KernelWork convolutionWork(const ConvolutionShape &s, ConvolutionPass pass,
                           const std::string &path, const ProductTile &tile) {
  static const std::map<ConvolutionPass, const char *> names = {
      {ConvolutionPass::Forward, "forward"},
      {ConvolutionPass::BackwardInput, "backward-input"},
      {ConvolutionPass::BackwardWeight, "backward-weight"}};
  const AsProduct p = asProduct(s, pass);
  return {std::string("convolution-") + names.at(pass) + "-" + path,
          path == "product" ? productAmounts(s, p, tile)
          : path == "rows"  ? rowAmounts(s, pass, tile)
                            : otherAmounts(s, p),
          static_cast<double>(p.m * p.n * (p.k + 1)) >= kLeastShared};
}

KernelWork generatedWork(const InstructionCounts &c, bool divides) {
  return {"generated",
          {1, c.rounds, c.scalars, c.vectors, c.divisions, c.moves, c.loads,
           c.stores, c.strided, c.calls, c.touched},
          divides};
}

KernelWork copyWork(const CopyShape &s) {
  return {
      "copy", {1, s.rows, s.contiguous, s.strided, s.transposed}, s.divides};
}

KernelWork gatherWork(const GatherShape &s) {
  if (s.adds)
    return {"scatter", {1, s.rows, s.bytes, s.cleared}, s.divides};
  return {"gather", {1, s.rows, s.bytes}, s.divides};
}

KernelWork poolWork(const std::string &name, const PoolShape &s) {
  KernelWork work{name, {1, s.planes, s.in, s.out}, s.divides};
  if (name != "max-pool-grad") // which goes where the index says
    work.amounts.push_back(s.taps);
  return work;
}

KernelWork poolWork(const MaxPoolShape &s) {
  return {"max-pool",
          {1, s.planes, s.lines, s.vectors, s.scalars, s.windows, s.border},
          s.divides};
}

} // namespace pipec::plan
