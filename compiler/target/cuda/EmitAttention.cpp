//===- EmitAttention.cpp - attention without stored scores ----------------===//
//
// A block has some rows of its own (queries, or keys for their gradients) and
// goes over the others a tile at a time; scores live in registers and, as
// operands of the next product, in shared memory. Forward follows the maximum
// of a row as it goes (online softmax); gradients compute the scores again and
// take their weights from the rows' numbers (top and share). Gradients of
// queries and of keys are kernels of their own, so that every sum has one order
// and nothing is added atomically. Powers are of two: ex2.approx is the chip's
// own.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/AttentionKernel.h"

#include <limits>

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;
using nn::tensorType;

namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Sums of a thread that leave room for all else in 255 registers.
constexpr int64_t kMostSums = 160;
/// Some kernels take a few more registers than the 128 that ptxas aims at, and
/// misses: in bf16 forward and gradients of queries of wider heads, in f32
/// those of keys of the others. 168 are enough, for three blocks.
constexpr int64_t kNarrowHead = 64, kWideBlocks = 3;

/// What a kernel holds: tiles of its own rows and of the others', results as
/// wide as a head and scores, and numbers of each of the others' rows.
struct Needs {
  int64_t ownTiles, otherTiles, results, scores, numbers = 0;
};

struct Tiling {
  int64_t warps = 1, others = 16;
  int64_t rows() const { return warps * kWarpRows; }
};

/// The largest tiles that fit.
Tiling tilingFor(const Needs &needs, int64_t own, int64_t others, int64_t size,
                 Type element) {
  for (int64_t warps : {4, 2, 1})
    for (int64_t columns : {64, 32, 16}) {
      const int64_t rows = warps * kWarpRows;
      const int64_t bytes =
          TileKernel::tileBytes(needs.ownTiles * rows +
                                    needs.otherTiles * columns,
                                size, element) +
          TileKernel::tileBytes(rows, columns, element) +
          needs.numbers * columns * static_cast<int64_t>(sizeof(float));
      const int64_t sums = (needs.results * size + needs.scores * columns) / 2;
      const bool tooMany = (warps > 1 && rows / 2 >= own) ||
                           (columns > 16 && columns / 2 >= others);
      if (!tooMany && bytes <= kSharedLimit && sums <= kMostSums)
        return {warps, columns};
    }
  return {};
}

/// Attention or one of its gradients, by names that all have.
struct Call {
  Value q, k, v, bias;
  double scale;
  bool causal, zeroRows, replaces;
  int64_t queries, keys, size;
  Type element;

  template <typename Op>
  explicit Call(Op op)
      : q(op.getQ()), k(op.getK()), v(op.getV()), bias(op.getBias()),
        scale(op.getScale().convertToDouble()), causal(op.getCausal()),
        zeroRows(op.getZeroRows()), replaces(op.getReplaces()) {
    auto type = tensorType(q);
    size = type.getShape().back();
    queries = type.getShape().end()[-2];
    keys = tensorType(k).getShape().end()[-2];
    element = type.getElementType();
  }
  int64_t padded() const { return llvm::alignTo(size, kWarpRows); }
};

class AttentionEmitter {
public:
  using Values = PlainKernel::Values;

  AttentionEmitter(ModuleOp module, StringRef name, Operation *op,
                   const Call &call, ArrayRef<Placement> places,
                   ArrayRef<Buffer> buffers, bool ownsKeys)
      : op(op), call(call), places(places), buffers(buffers),
        ownsKeys(ownsKeys), own(ownsKeys ? call.keys : call.queries),
        others(ownsKeys ? call.queries : call.keys),
        k(module, name, argumentsOf(op, places), call.element) {}

  KernelCode forward(nn::AttentionOp op);
  KernelCode queries(nn::AttentionGradQueryOp op);
  KernelCode keys(nn::AttentionGradKeysOp op);

private:
  using Body = llvm::function_ref<void(Value firstOther, Values &values)>;

  static SmallVector<Value> valuesOf(Operation *op) {
    SmallVector<Value> values(op->getOperands());
    llvm::append_range(values, op->getResults());
    return values;
  }
  /// Those of the op's operands and results that have a place.
  static SmallVector<KernelArgument> argumentsOf(Operation *op,
                                                 ArrayRef<Placement> places) {
    SmallVector<KernelArgument> arguments;
    for (auto [value, place] : llvm::zip_equal(valuesOf(op), places))
      if (place.buffer >= 0)
        arguments.push_back(
            argumentOf(place, tensorType(value).getElementType()));
    return arguments;
  }

  void begin(const Needs &needs);
  /// Where the block's matrix of an operand or result is; no base when it has
  /// no place.
  Matrix matrix(Value value);
  Values forOthers(Values values, Body body);

  /// -inf where there are no scores.
  void settleScores(Values &scores, Value firstOther);
  /// exp(score - level), 1 where they are equal; `level` is no infinity.
  Value power(Value score, Value level);
  Value isSeen(Value query, Value key);
  /// What powers of a row with this largest score are taken at.
  Value levelOf(Value top);
  /// The weights of further scores, in their place; what the rows' sums so far
  /// have to be multiplied with.
  SmallVector<Value> takeScores(Values &scores, Values &running);
  /// Writes what gradients need of the rows; their shares.
  SmallVector<Value> keepRows(nn::AttentionOp op, const Values &running);
  /// Values of the thread's two rows of a column of numbers, 0 behind its end.
  Value numberAt(const Matrix &column, Value row);
  /// Of a row over the four threads that have it.
  template <typename F> Value overRow(Value value, F combine);

  /// Reads the block's own rows' numbers.
  void beginGradient(Value ofTops, Value ofShares, Value ofDelta);
  /// weights = exp(scores - tops) * shares, 0 where there are none.
  Values weights(Values scores, Value firstOther);
  /// Not NaN, where the model has 0 instead.
  Value settled(Value weight);
  /// weights * (products - delta), 0 where no score has a weight.
  Values gradients(const Values &weights, const Values &products);
  /// A number a row of queries.
  struct Column {
    Matrix matrix;
    SmallVector<Value> own; ///< of the thread's rows, where those are queries
    int64_t shared = 0;     ///< where the others' are, where those are queries
  };
  Value rowNumber(size_t which, const Column &column);
  /// Reads the others' rows' numbers: into shared memory, as those of all of a
  /// thread's columns are more than its registers hold beside the sums.
  void fetchNumbers(Value firstOther);

  Operation *op;
  Call call;
  ArrayRef<Placement> places;
  ArrayRef<Buffer> buffers;
  bool ownsKeys;
  int64_t own, others;
  TileKernel k;
  Tiling tiling;
  Tile weightTile;
  Value first; ///< the block's first own row
  SmallVector<Value> batch;
  Matrix bias;
  Column tops, shares, delta;
};

} // namespace

//===----------------------------------------------------------------------===//
// Blocks and operands
//===----------------------------------------------------------------------===//

void AttentionEmitter::begin(const Needs &needs) {
  tiling = tilingFor(needs, own, others, call.padded(), call.element);
  ArrayRef<int64_t> outer = tensorType(call.q).getShape().drop_back(2);
  const int64_t tiles = llvm::divideCeil(own, tiling.rows());
  int64_t batches = 1;
  for (int64_t size : outer)
    batches *= size;
  k.begin(batches * tiles, tiling.warps);
  SmallVector<int64_t> sizes(outer);
  sizes.push_back(tiles);
  batch = k.indices(k.wide(blockNumber(k.b)), sizes);
  Value tile = batch.pop_back_val();
  // What takes longest comes first: late queries, early keys.
  if (call.causal && !ownsKeys)
    tile = arith::SubIOp::create(k.b, k.integer(tiles - 1), tile);
  first = k.times(tile, tiling.rows());
  weightTile = k.newTile(tiling.rows(), tiling.others);
  if (call.bias)
    bias = matrix(call.bias);
}

Matrix AttentionEmitter::matrix(Value value) {
  int argument = 0;
  for (auto [known, place] : llvm::zip_equal(valuesOf(op), places)) {
    if (known != value) {
      argument += place.buffer >= 0;
      continue;
    }
    Matrix result;
    if (place.buffer < 0)
      return result;
    auto type = tensorType(value);
    const int64_t rank = type.getRank(),
                  bytes = elementBytes(type.getElementType());
    result.rows = type.getDimSize(rank - 2);
    result.columns = type.getDimSize(rank - 1);
    result.rowStride = place.strides[rank - 2];
    Value index = k.integer(0);
    result.width = 16 / bytes;
    auto aligned = [&](int64_t step) {
      while (step % result.width)
        result.width /= 2;
    };
    const int64_t start = startOf(k.code.arguments[argument], buffers);
    aligned(start % bytes ? 1 : start / bytes);
    aligned(result.columns);
    if (result.rows > 1)
      aligned(result.rowStride);
    for (int64_t d = 0; d + 2 < rank; ++d) {
      if (type.getDimSize(d) == 1)
        continue;
      aligned(place.strides[d]);
      index = k.add(index, k.times(batch[d], place.strides[d]));
    }
    result.base = k.pointer(k.argument(argument), type.getElementType(), index);
    return result;
  }
  llvm_unreachable("a value of the op");
}

/// Goes over those of the others that the block's rows have to do with.
PlainKernel::Values AttentionEmitter::forOthers(Values values, Body body) {
  Value begin = k.integer(0), end = k.integer(others);
  if (call.causal && ownsKeys)
    begin =
        k.times(arith::DivUIOp::create(k.b, first, k.integer(tiling.others)),
                tiling.others);
  else if (call.causal)
    end = k.atMost(end, k.add(first, k.integer(tiling.rows())));
  return k.loop(begin, end, tiling.others, values,
                [&](Value at, Values &now) { body(at, now); });
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

PlainKernel::Value AttentionEmitter::isSeen(Value query, Value key) {
  Value seen;
  auto also = [&](Value condition) {
    seen = seen ? k.both(seen, condition) : condition;
  };
  // Own rows behind the end are never stored; others must not count.
  if (others % tiling.others)
    also(k.less(ownsKeys ? query : key, others));
  if (call.causal)
    also(arith::CmpIOp::create(k.b, arith::CmpIPredicate::ule, key, query));
  return seen;
}

// A mask's lowest number is finite and must stay it: no factor goes on it.
void AttentionEmitter::settleScores(Values &scores, Value firstOther) {
  for (auto [i, score] : llvm::enumerate(scores)) {
    Value row = k.add(first, k.ownRow(i % 4 / 2));
    Value column = k.add(firstOther, k.ownColumn(i));
    Value query = ownsKeys ? column : row, key = ownsKeys ? row : column;
    if (bias.base) {
      Value index = k.add(k.times(query, bias.rowStride), key);
      Value there = k.both(k.less(query, call.queries), k.less(key, call.keys));
      index = k.select(there, index, k.integer(0));
      Value added = k.load(bias.base, k.b.getF32Type(), index);
      score = k.fma(score, k.real(call.scale), added);
    } else {
      score = k.multiplied(score, k.real(call.scale));
    }
    if (Value seen = isSeen(query, key))
      score = k.select(seen, score, k.real(-kInfinity));
  }
}

PlainKernel::Value AttentionEmitter::power(Value score, Value level) {
  return k.exp2(
      k.multiplied(arith::SubFOp::create(k.b, score, level), k.real(kLog2E)));
}

template <typename F>
PlainKernel::Value AttentionEmitter::overRow(Value value, F combine) {
  for (int64_t bits : {1, 2})
    value = combine(value, shuffleXor(k.b, value, bits));
  return value;
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

PlainKernel::Value AttentionEmitter::levelOf(Value top) {
  Value isNone = arith::CmpFOp::create(k.b, arith::CmpFPredicate::OEQ, top,
                                       k.real(-kInfinity));
  return k.select(isNone, k.real(0), top);
}

/// `running`: of both rows the maximum, then the thread's part of the sum, then
/// y.
SmallVector<PlainKernel::Value> AttentionEmitter::takeScores(Values &scores,
                                                             Values &running) {
  auto larger = [&](Value x, Value y) { return k.larger(x, y); };
  SmallVector<Value> factors;
  for (size_t row : {0, 1}) {
    Value top = scores[2 * row];
    for (size_t i = 0; i < scores.size(); ++i)
      if (i % 4 / 2 == row)
        top = k.larger(top, scores[i]);
    top = k.larger(running[row], overRow(top, larger));
    Value level = levelOf(top);
    factors.push_back(power(running[row], level));
    Value sum = k.multiplied(running[2 + row], factors[row]);
    for (size_t i = 0; i < scores.size(); ++i)
      if (i % 4 / 2 == row) {
        scores[i] = power(scores[i], level);
        sum = k.plus(sum, scores[i]);
      }
    running[row] = top;
    running[2 + row] = sum;
  }
  return factors;
}

SmallVector<PlainKernel::Value>
AttentionEmitter::keepRows(nn::AttentionOp op, const Values &running) {
  auto add = [&](Value x, Value y) { return k.plus(x, y); };
  Value zero = k.real(0);
  SmallVector<Value> inverse;
  Matrix tops = matrix(op.getTops()), shares = matrix(op.getShares());
  for (int row : {0, 1}) {
    Value sum = overRow(running[2 + row], add);
    // Without any score, or with one that is no number.
    Value isEmpty =
        arith::CmpFOp::create(k.b, arith::CmpFPredicate::UEQ, sum, zero);
    Value share = arith::DivFOp::create(k.b, k.real(1), sum);
    if (call.zeroRows)
      share = k.select(isEmpty, zero, share);
    inverse.push_back(share);
    // The level that the powers were taken at.
    Value level = levelOf(running[row]);
    Value at = k.add(first, k.ownRow(row));
    auto keep = [&](Value number, const Matrix &column) {
      if (column.base)
        k.when(k.less(at, own), [&] {
          k.store(number, column.base, k.times(at, column.rowStride));
        });
    };
    keep(level, tops);
    keep(share, shares);
  }
  return inverse;
}

KernelCode AttentionEmitter::forward(nn::AttentionOp op) {
  begin({1, 2, 1, 1});
  const int64_t size = call.padded();
  if (size > kNarrowHead && call.element.isBF16())
    k.setLeastBlocks(kWideBlocks);
  Tile ofQ = k.newTile(tiling.rows(), size),
       ofK = k.newTile(tiling.others, size),
       ofV = k.newTile(tiling.others, size);
  k.fetch(ofQ, matrix(op.getQ()), first);
  Matrix keys = matrix(op.getK()), values = matrix(op.getV());
  Value none = k.real(-kInfinity), zero = k.real(0);
  Values running = {none, none, zero, zero};
  llvm::append_range(running, k.zeros(size));
  running = forOthers(running, [&](Value at, Values &now) {
    barrier(k.b);
    k.fetch(ofK, keys, at);
    k.fetch(ofV, values, at);
    barrier(k.b);
    Values scores = k.zeros(tiling.others);
    k.multiply(scores, ofQ, ofK, /*transposed=*/true);
    settleScores(scores, at);
    SmallVector<Value> factors = takeScores(scores, now);
    k.keep(weightTile, scores);
    k.meetWarp();
    Values y(now.begin() + 4, now.end());
    for (auto [i, value] : llvm::enumerate(y))
      value = k.multiplied(value, factors[i % 4 / 2]);
    k.multiply(y, weightTile, ofV, /*transposed=*/false);
    llvm::copy(y, now.begin() + 4);
  });
  SmallVector<Value> inverse = keepRows(op, running);
  Values y(running.begin() + 4, running.end());
  if (call.zeroRows)
    for (auto [i, sum] : llvm::enumerate(y)) {
      Value isNone = arith::CmpFOp::create(k.b, arith::CmpFPredicate::OEQ,
                                           inverse[i % 4 / 2], zero);
      sum = k.select(isNone, zero, sum);
    }
  k.put(matrix(op.getY()), first, y, inverse);
  return k.finish();
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

PlainKernel::Value AttentionEmitter::numberAt(const Matrix &column, Value row) {
  Value there = k.less(row, column.rows);
  Value index = k.select(there, k.times(row, column.rowStride), k.integer(0));
  return k.select(there, k.load(column.base, k.b.getF32Type(), index),
                  k.real(0));
}

/// Of the query that sum `which` is of.
PlainKernel::Value AttentionEmitter::rowNumber(size_t which,
                                               const Column &column) {
  return ownsKeys ? k.number(column.shared, which) : column.own[which % 4 / 2];
}

void AttentionEmitter::fetchNumbers(Value firstOther) {
  const Column *columns[] = {&tops, &shares, &delta};
  k.fetchNumbers({tops.shared, shares.shared, delta.shared}, tiling.others,
                 [&](size_t which, Value row) {
                   return numberAt(columns[which]->matrix,
                                   k.add(firstOther, row));
                 });
}

void AttentionEmitter::beginGradient(Value ofTops, Value ofShares,
                                     Value ofDelta) {
  auto read = [&](Column &column, Value value) {
    column.matrix = matrix(value);
    if (ownsKeys) {
      column.shared = k.newNumbers(tiling.others);
      return;
    }
    for (int row : {0, 1})
      column.own.push_back(
          numberAt(column.matrix, k.add(first, k.ownRow(row))));
  };
  read(tops, ofTops);
  read(shares, ofShares);
  read(delta, ofDelta);
}

PlainKernel::Value AttentionEmitter::settled(Value weight) {
  if (!call.zeroRows)
    return weight;
  Value isNumber =
      arith::CmpFOp::create(k.b, arith::CmpFPredicate::ORD, weight, weight);
  return k.select(isNumber, weight, k.real(0));
}

PlainKernel::Values AttentionEmitter::weights(Values scores, Value firstOther) {
  settleScores(scores, firstOther);
  for (auto [i, score] : llvm::enumerate(scores))
    score = settled(
        k.multiplied(power(score, rowNumber(i, tops)), rowNumber(i, shares)));
  return scores;
}

PlainKernel::Values AttentionEmitter::gradients(const Values &weights,
                                                const Values &products) {
  Values result;
  for (auto [i, weight] : llvm::enumerate(weights)) {
    Value mean = rowNumber(i, delta);
    Value gradient =
        k.multiplied(weight, arith::SubFOp::create(k.b, products[i], mean));
    if (call.replaces) {
      Value isReplaced = arith::CmpFOp::create(
          k.b, arith::CmpFPredicate::OEQ, rowNumber(i, tops),
          k.real(std::numeric_limits<float>::lowest()));
      gradient = k.select(isReplaced, k.real(0), gradient);
    }
    result.push_back(gradient);
  }
  return result;
}

KernelCode AttentionEmitter::queries(nn::AttentionGradQueryOp op) {
  begin({2, 2, 1, 2});
  const int64_t size = call.padded();
  if (size > kNarrowHead && call.element.isBF16())
    k.setLeastBlocks(kWideBlocks);
  Tile ofQ = k.newTile(tiling.rows(), size),
       ofDy = k.newTile(tiling.rows(), size),
       ofK = k.newTile(tiling.others, size),
       ofV = k.newTile(tiling.others, size);
  k.fetch(ofQ, matrix(op.getQ()), first);
  k.fetch(ofDy, matrix(op.getDy()), first);
  beginGradient(op.getTops(), op.getShares(), op.getDelta());
  Matrix keys = matrix(op.getK()), values = matrix(op.getV());
  Values sums = forOthers(k.zeros(size), [&](Value at, Values &now) {
    barrier(k.b);
    k.fetch(ofK, keys, at);
    k.fetch(ofV, values, at);
    barrier(k.b);
    Values scores = k.zeros(tiling.others), products = scores;
    k.multiply(scores, ofQ, ofK, /*transposed=*/true);
    k.multiply(products, ofDy, ofV, /*transposed=*/true);
    k.keep(weightTile, gradients(weights(scores, at), products));
    k.meetWarp();
    k.multiply(now, weightTile, ofK, /*transposed=*/false);
  });
  Value scale = k.real(call.scale);
  k.put(matrix(op.getDq()), first, sums, {scale, scale});
  return k.finish();
}

KernelCode AttentionEmitter::keys(nn::AttentionGradKeysOp op) {
  const int64_t size = call.padded();
  // Sums of both results would not leave f32 the registers for its operands.
  const bool apart = call.element.isF32() && size > kMostHeadSize / 2;
  begin({2, 2, apart ? 1 : 2, 2, /*numbers=*/3});
  if (size <= kNarrowHead && call.element.isF32())
    k.setLeastBlocks(kWideBlocks);
  Tile ofK = k.newTile(tiling.rows(), size),
       ofV = k.newTile(tiling.rows(), size),
       ofQ = k.newTile(tiling.others, size),
       ofDy = k.newTile(tiling.others, size);
  k.fetch(ofK, matrix(op.getK()), first);
  k.fetch(ofV, matrix(op.getV()), first);
  beginGradient(op.getTops(), op.getShares(), op.getDelta());
  Matrix q = matrix(op.getQ()), dy = matrix(op.getDy());
  auto sumsOf = [&](bool ofValues, bool ofKeys) {
    Values sums;
    for (bool wanted : {ofValues, ofKeys})
      if (wanted)
        llvm::append_range(sums, k.zeros(size));
    return forOthers(sums, [&](Value at, Values &now) {
      barrier(k.b);
      k.fetch(ofQ, q, at);
      k.fetch(ofDy, dy, at);
      fetchNumbers(at);
      barrier(k.b);
      Values scores = k.zeros(tiling.others), products = scores, result;
      k.multiply(scores, ofK, ofQ, /*transposed=*/true);
      scores = weights(scores, at);
      if (ofValues) {
        result.assign(now.begin(), now.begin() + size / 2);
        k.keep(weightTile, scores);
        k.meetWarp();
        k.multiply(result, weightTile, ofDy, /*transposed=*/false);
        k.meetWarp(); // all have read what is written over
      }
      if (ofKeys) {
        k.multiply(products, ofV, ofDy, /*transposed=*/true);
        k.keep(weightTile, gradients(scores, products));
        k.meetWarp();
        Values own(now.end() - size / 2, now.end());
        k.multiply(own, weightTile, ofQ, /*transposed=*/false);
        llvm::append_range(result, own);
      }
      now = result;
    });
  };
  Value scale = k.real(call.scale), one = k.real(1);
  Values sums = sumsOf(true, !apart);
  Matrix dv = matrix(op.getDv());
  if (dv.base)
    k.put(dv, first, Values(sums.begin(), sums.begin() + size / 2), {one, one});
  if (apart)
    sums = sumsOf(false, true);
  k.put(matrix(op.getDk()), first, Values(sums.end() - size / 2, sums.end()),
        {scale, scale});
  return k.finish();
}

//===----------------------------------------------------------------------===//

bool cuda::hasAttentionKernel(Operation *op) {
  auto q = tensorType(op->getOperand(0));
  return q.getShape().back() <= kMostHeadSize &&
         (q.getElementType().isF32() || q.getElementType().isBF16());
}

KernelCode cuda::emitAttentionKernel(ModuleOp module, StringRef name,
                                     Operation *op, ArrayRef<Placement> places,
                                     ArrayRef<Buffer> buffers) {
  if (auto attention = dyn_cast<nn::AttentionOp>(op))
    return AttentionEmitter(module, name, op, Call(attention), places, buffers,
                            /*ownsKeys=*/false)
        .forward(attention);
  if (auto query = dyn_cast<nn::AttentionGradQueryOp>(op))
    return AttentionEmitter(module, name, op, Call(query), places, buffers,
                            /*ownsKeys=*/false)
        .queries(query);
  auto keys = cast<nn::AttentionGradKeysOp>(op);
  return AttentionEmitter(module, name, op, Call(keys), places, buffers,
                          /*ownsKeys=*/true)
      .keys(keys);
}
