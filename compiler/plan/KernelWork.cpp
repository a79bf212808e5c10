#include "compiler/plan/KernelWork.h"

#include "compiler/plan/ConvolutionWork.h"
#include "compiler/plan/ProductTiles.h"

#include <algorithm>
#include <cmath>

namespace pipec::plan {

namespace {

/// With at most so many rows the right operand of a product is read in place
/// (runtime/kernels/cpu/gemm).
constexpr int64_t kFewRows = 16;

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
    addConvolutionAmounts(all);
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
