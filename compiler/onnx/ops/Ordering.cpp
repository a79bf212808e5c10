//===- Ordering.cpp - importers that compare elements with each other -----===//
//
// The core has no sort. Ranks come from comparing all pairs along an axis,
// which is fine for the short axes that models choose from (experts,
// candidates).
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

using namespace mlir;

namespace pipec::onnx {

/// Pairs that are compared at most.
static constexpr int64_t kMostPairs = int64_t(1) << 26;

static void checkPairs(NodeContext &c, const Val &x, int64_t times) {
  int64_t pairs = 0;
  if (__builtin_mul_overflow(x.type.getNumElements(), times, &pairs) ||
      pairs > kMostPairs)
    c.fail("it compares " + std::to_string(x.type.getNumElements()) +
           " elements with " + std::to_string(times) + " others each");
}

/// x with `axis` at the end.
static SmallVector<int64_t> axisLast(int64_t axis, int64_t rank) {
  SmallVector<int64_t> swap(llvm::to_vector(llvm::seq<int64_t>(0, rank)));
  std::swap(swap[axis], swap[rank - 1]);
  return swap;
}

/// The k largest (smallest) elements in order, ties by index: element i has the
/// rank (how many come before it), and output r takes the element of rank r.
void importTopK(NodeContext &c) {
  Emitter &e = c.e;
  const int64_t rank = c.in(0).getRank();
  const int64_t axis = c.axis(c.intAttr("axis", -1), rank);
  const SmallVector<int64_t> swap = axisLast(axis, rank);
  const Val x = e.transpose(c.in(0), swap);
  const int64_t n = x.dim(rank - 1),
                k = c.has(1) ? c.scalarInt(1, "k") : c.intAttr("k");
  if (k < 0 || k > n)
    c.fail("it takes " + std::to_string(k) + " of " + std::to_string(n) +
           " elements");
  if (k == 0)
    c.fail("it takes no element");
  checkPairs(c, x, n);
  const bool largest = c.intAttr("largest", 1) != 0;
  SmallVector<int64_t> row(x.getShape()), column(x.getShape()),
      square(x.getShape());
  row.insert(row.end() - 1, 1); // [..., 1, n]: the other element
  column.push_back(1);          // [..., n, 1]: the element
  square.push_back(n);
  const auto squareType = RankedTensorType::get(square, e.i64());
  const Val self = e.reshape(x, column), other = e.reshape(x, row);
  const Val before = e.compare(largest ? "gt" : "lt", other, self);
  const Val earlier =
      e.compare("lt", e.iota(squareType, rank), e.iota(squareType, rank - 1));
  const Val tie = e.binary<nn::AndOp>(e.compare("eq", other, self), earlier);
  const Val comes = e.cast(e.binary<nn::OrOp>(before, tie), e.i64());
  const Val order = e.reduce("sum", comes, {rank}); // [..., n, 1]
  SmallVector<int64_t> chosen(x.getShape());
  chosen.push_back(k);
  const auto chosenType = RankedTensorType::get(chosen, e.i64());
  const Val hit =
      e.compare("eq", e.broadcast(order, chosen), e.iota(chosenType, rank));
  const auto take = [&](const Val &v) {
    const Val wide = e.broadcast(v, chosen);
    const Val only = e.select(hit, wide, e.splatLike(wide, 0));
    const Val sum = e.reduce("sum", only, {rank - 1});
    SmallVector<int64_t> shape(x.getShape());
    shape.back() = k;
    return e.transpose(e.reshape(sum, shape), swap);
  };
  c.out(0, take(self));
  c.out(1, take(e.iota(RankedTensorType::get(column, e.i64()), rank - 1)));
}

/// Products of the elements up to each one, by a triangular mask.
void importCumProd(NodeContext &c) {
  Emitter &e = c.e;
  const int64_t rank = c.in(0).getRank();
  const int64_t axis = c.axis(c.scalarInt(1, "axis"), rank);
  const SmallVector<int64_t> swap = axisLast(axis, rank);
  const Val x = e.transpose(c.in(0), swap);
  const int64_t n = x.dim(rank - 1);
  checkPairs(c, x, n);
  SmallVector<int64_t> row(x.getShape());
  row.insert(row.end() - 1, 1);
  SmallVector<int64_t> square(x.getShape());
  square.push_back(n);
  const auto type = RankedTensorType::get(square, e.i64());
  const Val self = e.iota(type, rank - 1), other = e.iota(type, rank);
  const bool exclusive = c.intAttr("exclusive", 0) != 0,
             reverse = c.intAttr("reverse", 0) != 0;
  const char *predicate =
      reverse ? (exclusive ? "gt" : "ge") : (exclusive ? "lt" : "le");
  const Val wide = e.broadcast(e.reshape(x, row), square);
  const Val only =
      e.select(e.compare(predicate, other, self), wide, e.splatLike(wide, 1));
  c.out(e.transpose(e.reshape(e.reduce("prod", only, {rank}), x.getShape()),
                    swap));
}

/// Reduces the updates that hit each position: compares all positions with all
/// updates. `x` is [positions, inner], `updates` [updates, inner].
Val scatterReduce(NodeContext &c, const Val &x, const Val &positions,
                  const Val &updates, const std::string &kind) {
  Emitter &e = c.e;
  const int64_t places = x.dim(0), count = positions.type.getNumElements(),
                inner = x.dim(0) == 0 ? 0 : x.type.getNumElements() / places;
  checkPairs(c, e.reshape(updates, {count, inner}), places);
  const auto pairs = RankedTensorType::get({places, count}, e.i64());
  const Val hit =
      e.compare("eq", e.iota(pairs, 0), e.reshape(positions, {1, count}));
  const Val wide = e.broadcast(e.reshape(updates, {1, count, inner}),
                               {places, count, inner});
  const Val mask =
      e.broadcast(e.reshape(hit, {places, count, 1}), {places, count, inner});
  const char *reduction = kind == "mul"   ? "prod"
                          : kind == "max" ? "max"
                                          : "min";
  // Elements that no update hits keep their value: x takes part in the
  // reduction as one more update.
  const Val own = e.reshape(x, {places, 1, inner});
  const Val neutral = kind == "mul" ? e.splatLike(wide, 1)
                                    : e.broadcast(own, {places, count, inner});
  const Val all = e.concat({own, e.select(mask, wide, neutral)}, 1);
  return e.reshape(e.reduce(reduction, all, {1}), x.getShape());
}

} // namespace pipec::onnx
