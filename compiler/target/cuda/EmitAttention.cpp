//===- EmitAttention.cpp - attention without stored scores ----------------===//
//
// A block has some rows of its own (queries, or keys for their gradients) and
// goes over the others a tile at a time; scores live in registers, from where
// bf16 has them as operands of the next product, and f32 by shared memory.
// Forward follows the maximum of a row as it goes (online softmax); gradients
// compute the scores again and take their weights from the rows' numbers (top
// and share). Gradients of queries and of keys are kernels of their own, so
// that every sum has one order and nothing is added atomically. Powers are of
// two: ex2.approx is the chip's own.
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
/// Some kernels take a few more registers than ptxas aims at, and misses: in
/// bf16 forward and gradients of queries of wider heads, in f32 those of keys
/// of the others. 168 are enough, for three blocks.
constexpr int64_t kNarrowHead = 64, kWideBlocks = 3;

/// What a kernel holds: tiles of its own rows and of the others', results as
/// wide as a head and scores, and numbers of each of the others' rows.
struct Needs {
  int64_t ownTiles, otherTiles, results, scores, numbers = 0;
};

struct Tiling {
  int64_t warps = 1, others = 16;
  /// Of the others' tiles: two to fetch the next one ahead.
  int64_t buffers = 1;
  int64_t rowsOfWarp = kWarpRows;
  int64_t rows() const { return warps * rowsOfWarp; }
};

/// The largest tiles that fit, narrow ones of bf16 in two buffers. Of those the
/// fastest, measured on an H100, has warps of 32 rows, which read less of
/// shared memory, and as many registers as 64 threads of a block leave. With
/// two results tiles of 32 were 5 % faster than those of 16, but code for sm_80
/// would spill.
Tiling tilingFor(const Needs &needs, int64_t own, int64_t others, int64_t size,
                 Type element) {
  const bool isNarrow = element.isBF16() && size <= kNarrowHead;
  for (int64_t warps : {4, 2}) {
    const Tiling tall = {warps, needs.results == 1 ? 32 : 16, 2, 2 * kWarpRows};
    if (isNarrow && (warps == 2 || needs.scores == 1) &&
        own > tall.rows() / 2 && others > tall.others / 2)
      return tall;
  }
  for (int64_t warps : {4, 2, 1})
    for (int64_t columns : {64, 32, 16}) {
      const int64_t rows = warps * kWarpRows, buffers = isNarrow ? 2 : 1;
      const int64_t bytes =
          TileKernel::tileBytes(needs.ownTiles * rows +
                                    buffers * needs.otherTiles * columns,
                                size, element) +
          TileKernel::throughBytes(rows, columns, element) +
          buffers * needs.numbers * columns *
              static_cast<int64_t>(sizeof(float));
      const int64_t sums = (needs.results * size + needs.scores * columns) / 2;
      const bool tooMany = (warps > 1 && rows / 2 >= own) ||
                           (columns > 16 && columns / 2 >= others);
      if (!tooMany && bytes <= kSharedLimit && sums <= kMostSums)
        return {warps, columns, buffers, kWarpRows};
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
  /// `masks`: some scores of the tile may not be seen.
  using Body =
      llvm::function_ref<void(Value firstOther, bool masks, Values &values)>;

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
  /// Tiles of the others: of a matrix that is read with them, and as `body` of
  /// forOthers has them.
  struct Fetched {
    Matrix matrix;
    Tile all, now;
  };
  void readOthers(Fetched &one, Value from);
  void fetchOthers(Value firstOther, Value end);
  void fetchFirst(Value begin, Value end);
  void fetchAhead(Value firstOther);
  Value bufferOf(Value firstOther);

  /// Whether no number is added to scores: then some tiles need no look at
  /// what is seen.
  bool isPlain() const { return !call.bias; }
  /// -inf where there are no scores.
  void settleScores(Values &scores, Value firstOther, bool masks);
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
  /// A value of one of the thread's rows of a column of numbers, 0 behind its
  /// end.
  Value numberAt(const Matrix &column, Value row);
  /// Of a row over the four threads that have it.
  template <typename F> Value overRow(Value value, F combine);

  /// Reads the block's own rows' numbers.
  void beginGradient(Value ofTops, Value ofShares, Value ofDelta);
  /// weights = exp(scores - tops) * shares, 0 where there are none.
  Values weights(Values scores, Value firstOther, bool masks);
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
  SmallVector<Fetched *, 2> fetched;
  Value numbersShift; ///< of the others' numbers, as that of a tile
  Value first; ///< the block's first own row
  SmallVector<Value> batch;
  Matrix bias;
  double unit = 1; ///< of scores: forward may leave products as they are
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
  k.begin(batches * tiles, tiling.warps, tiling.rowsOfWarp);
  SmallVector<int64_t> sizes(outer);
  sizes.push_back(tiles);
  batch = k.indices(k.wide(blockNumber(k.b)), sizes);
  Value tile = batch.pop_back_val();
  // What takes longest comes first: late queries, early keys.
  if (call.causal && !ownsKeys)
    tile = arith::SubIOp::create(k.b, k.integer(tiles - 1), tile);
  first = k.times(tile, tiling.rows());
  weightTile = k.newThrough(tiling.rows(), tiling.others);
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

void AttentionEmitter::readOthers(Fetched &one, Value from) {
  one.matrix = matrix(from);
  one.all = one.now = k.newTile(tiling.others, call.padded(), tiling.buffers);
  fetched.push_back(&one);
}

/// Tiles take turns.
PlainKernel::Value AttentionEmitter::bufferOf(Value firstOther) {
  Value tile =
      arith::DivUIOp::create(k.b, firstOther, k.integer(tiling.others));
  return arith::AndIOp::create(k.b, tile, k.integer(1));
}

void AttentionEmitter::fetchAhead(Value firstOther) {
  Value buffer = bufferOf(firstOther);
  for (const Fetched *one : fetched)
    k.fetchAhead(k.inBuffer(one->all, buffer), one->matrix, firstOther);
  if (ownsKeys)
    for (const Column *column : {&tops, &shares, &delta})
      k.fetchAhead(column->shared, tiling.others, buffer, column->matrix,
                   firstOther);
}

void AttentionEmitter::fetchFirst(Value begin, Value end) {
  if (tiling.buffers == 1)
    return;
  Value isAny =
      arith::CmpIOp::create(k.b, arith::CmpIPredicate::ult, begin, end);
  k.when(isAny, [&] { fetchAhead(begin); });
}

/// What the others' tiles are, from here to the next: with two buffers what was
/// under way, while that behind it begins.
void AttentionEmitter::fetchOthers(Value firstOther, Value end) {
  if (tiling.buffers == 1) {
    barrier(k.b);
    for (const Fetched *one : fetched)
      k.fetch(one->all, one->matrix, firstOther);
    if (ownsKeys)
      fetchNumbers(firstOther);
    barrier(k.b);
    return;
  }
  k.waitForFetches();
  barrier(k.b); // for all threads' parts, and nobody reads the other buffer
  Value next = k.add(firstOther, k.integer(tiling.others));
  Value isAny =
      arith::CmpIOp::create(k.b, arith::CmpIPredicate::ult, next, end);
  k.when(isAny, [&] { fetchAhead(next); });
  Value buffer = bufferOf(firstOther);
  for (Fetched *one : fetched)
    one->now = k.inBuffer(one->all, buffer);
  numbersShift = k.times(buffer, tiling.others);
}

/// Goes over those of the others that the block's rows have to do with. Where a
/// triangle or the end cuts tiles, the others are a loop of their own.
PlainKernel::Values AttentionEmitter::forOthers(Values values, Body body) {
  const int64_t step = tiling.others;
  auto wholeTiles = [&](Value rows) {
    return k.times(arith::DivUIOp::create(k.b, rows, k.integer(step)), step);
  };
  const bool isRagged = others % step != 0;
  Value begin = k.integer(0), end = k.integer(others);
  auto go = [&](Value from, Value to, bool masks) {
    values = k.loop(from, to, step, values, [&](Value at, Values &now) {
      fetchOthers(at, end);
      body(at, masks, now);
    });
  };
  if (call.causal && ownsKeys) {
    begin = wholeTiles(first);
    Value whole = k.atMost(
        end, wholeTiles(k.add(first, k.integer(tiling.rows() + step - 2))));
    if (!isPlain() || isRagged)
      whole = end;
    fetchFirst(begin, end);
    go(begin, whole, true);
    if (whole != end)
      go(whole, end, false);
    return values;
  }
  Value whole = k.integer(others - others % step);
  if (call.causal) {
    end = k.atMost(end, k.add(first, k.integer(tiling.rows())));
    whole = k.atMost(whole, wholeTiles(k.add(first, k.integer(1))));
  }
  fetchFirst(begin, end);
  if (!isPlain()) {
    go(begin, end, true);
    return values;
  }
  go(begin, whole, false);
  if (call.causal || isRagged)
    go(whole, end, true);
  return values;
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
void AttentionEmitter::settleScores(Values &scores, Value firstOther,
                                    bool masks) {
  for (auto [i, score] : llvm::enumerate(scores)) {
    if (!bias.base && unit == 1)
      score = k.multiplied(score, k.real(call.scale));
    if (isPlain() && !masks)
      continue;
    Value row = k.add(first, k.ownRow(k.rowOf(i)));
    Value column = k.add(firstOther, k.ownColumn(i));
    Value query = ownsKeys ? column : row, key = ownsKeys ? row : column;
    if (bias.base) {
      Value index = k.add(k.times(query, bias.rowStride), key);
      Value there = k.both(k.less(query, call.queries), k.less(key, call.keys));
      index = k.select(there, index, k.integer(0));
      Value added = k.load(bias.base, k.b.getF32Type(), index);
      score = k.fma(score, k.real(call.scale), added);
    }
    if (Value seen = isSeen(query, key))
      score = k.select(seen, score, k.real(-kInfinity));
  }
}

PlainKernel::Value AttentionEmitter::power(Value score, Value level) {
  return k.exp2(k.multiplied(arith::SubFOp::create(k.b, score, level),
                             k.real(kLog2E * unit)));
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

/// `running`: of all rows the maximum, then the thread's part of the sum, then
/// y.
SmallVector<PlainKernel::Value> AttentionEmitter::takeScores(Values &scores,
                                                             Values &running) {
  auto larger = [&](Value x, Value y) { return k.larger(x, y); };
  SmallVector<Value> factors;
  for (size_t row = 0; row < k.rows(); ++row) {
    Value top = scores[2 * row];
    for (size_t i = 0; i < scores.size(); ++i)
      if (k.rowOf(i) == row)
        top = k.larger(top, scores[i]);
    top = k.larger(running[row], overRow(top, larger));
    Value level = levelOf(top);
    factors.push_back(power(running[row], level));
    Value sum = k.multiplied(running[k.rows() + row], factors[row]);
    for (size_t i = 0; i < scores.size(); ++i)
      if (k.rowOf(i) == row) {
        scores[i] = power(scores[i], level);
        sum = k.plus(sum, scores[i]);
      }
    running[row] = top;
    running[k.rows() + row] = sum;
  }
  return factors;
}

SmallVector<PlainKernel::Value>
AttentionEmitter::keepRows(nn::AttentionOp op, const Values &running) {
  auto add = [&](Value x, Value y) { return k.plus(x, y); };
  Value zero = k.real(0);
  SmallVector<Value> inverse;
  Matrix tops = matrix(op.getTops()), shares = matrix(op.getShares());
  for (size_t row = 0; row < k.rows(); ++row) {
    Value sum = overRow(running[k.rows() + row], add);
    // Without any score, or with one that is no number.
    Value isEmpty =
        arith::CmpFOp::create(k.b, arith::CmpFPredicate::UEQ, sum, zero);
    Value share = arith::DivFOp::create(k.b, k.real(1), sum);
    if (call.zeroRows)
      share = k.select(isEmpty, zero, share);
    inverse.push_back(share);
    // The level that the powers were taken at.
    Value level = k.multiplied(levelOf(running[row]), k.real(unit));
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
  if (call.element.isBF16())
    k.setLeastBlocks(kWideBlocks);
  Tile ofQ = k.newTile(tiling.rows(), size);
  Fetched ofK, ofV;
  readOthers(ofK, op.getK());
  readOthers(ofV, op.getV());
  k.fetch(ofQ, matrix(op.getQ()), first);
  if (!call.bias && call.scale > 0)
    unit = call.scale;
  Value none = k.real(-kInfinity), zero = k.real(0);
  Values running(k.rows(), none);
  running.append(k.rows(), zero);
  llvm::append_range(running, k.zeros(size));
  running = forOthers(running, [&](Value at, bool masks, Values &now) {
    Values scores = k.zeros(tiling.others);
    k.multiply(scores, ofQ, ofK.now, /*transposed=*/true);
    settleScores(scores, at, masks);
    SmallVector<Value> factors = takeScores(scores, now);
    Values y(now.begin() + 2 * k.rows(), now.end());
    for (auto [i, value] : llvm::enumerate(y))
      value = k.multiplied(value, factors[k.rowOf(i)]);
    k.multiply(y, scores, weightTile, ofV.now);
    llvm::copy(y, now.begin() + 2 * k.rows());
  });
  SmallVector<Value> inverse = keepRows(op, running);
  Values y(running.begin() + 2 * k.rows(), running.end());
  if (call.zeroRows)
    for (auto [i, sum] : llvm::enumerate(y)) {
      Value isNone = arith::CmpFOp::create(k.b, arith::CmpFPredicate::OEQ,
                                           inverse[k.rowOf(i)], zero);
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
  return ownsKeys ? k.number(column.shared, which, numbersShift)
                  : column.own[k.rowOf(which)];
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
      column.shared = k.newNumbers(tiling.buffers * tiling.others);
      return;
    }
    for (size_t row = 0; row < k.rows(); ++row)
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

PlainKernel::Values AttentionEmitter::weights(Values scores, Value firstOther,
                                              bool masks) {
  settleScores(scores, firstOther, masks);
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
       ofDy = k.newTile(tiling.rows(), size);
  Fetched ofK, ofV;
  readOthers(ofK, op.getK());
  readOthers(ofV, op.getV());
  k.fetch(ofQ, matrix(op.getQ()), first);
  k.fetch(ofDy, matrix(op.getDy()), first);
  beginGradient(op.getTops(), op.getShares(), op.getDelta());
  Values sums =
      forOthers(k.zeros(size), [&](Value at, bool masks, Values &now) {
        Values scores = k.zeros(tiling.others), products = scores;
        k.multiply(scores, ofQ, ofK.now, /*transposed=*/true);
        k.multiply(products, ofDy, ofV.now, /*transposed=*/true);
        k.multiply(now, gradients(weights(scores, at, masks), products),
                   weightTile, ofK.now);
      });
  const Values scales(k.rows(), k.real(call.scale));
  k.put(matrix(op.getDq()), first, sums, scales);
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
       ofV = k.newTile(tiling.rows(), size);
  Fetched ofQ, ofDy;
  readOthers(ofQ, op.getQ());
  readOthers(ofDy, op.getDy());
  k.fetch(ofK, matrix(op.getK()), first);
  k.fetch(ofV, matrix(op.getV()), first);
  beginGradient(op.getTops(), op.getShares(), op.getDelta());
  auto sumsOf = [&](bool ofValues, bool ofKeys) {
    Values sums;
    for (bool wanted : {ofValues, ofKeys})
      if (wanted)
        llvm::append_range(sums, k.zeros(size));
    return forOthers(sums, [&](Value at, bool masks, Values &now) {
      Values scores = k.zeros(tiling.others), products = scores, result;
      k.multiply(scores, ofK, ofQ.now, /*transposed=*/true);
      scores = weights(scores, at, masks);
      if (ofValues) {
        result.assign(now.begin(), now.begin() + k.sumsOf(size));
        k.multiply(result, scores, weightTile, ofDy.now);
      }
      if (ofKeys) {
        k.multiply(products, ofV, ofDy.now, /*transposed=*/true);
        Values own(now.end() - k.sumsOf(size), now.end());
        k.multiply(own, gradients(scores, products), weightTile, ofQ.now);
        llvm::append_range(result, own);
      }
      now = result;
    });
  };
  const Values scales(k.rows(), k.real(call.scale)), ones(k.rows(), k.real(1));
  Values sums = sumsOf(true, !apart);
  Matrix dv = matrix(op.getDv());
  if (dv.base)
    k.put(dv, first, Values(sums.begin(), sums.begin() + k.sumsOf(size)), ones);
  if (apart)
    sums = sumsOf(false, true);
  k.put(matrix(op.getDk()), first,
        Values(sums.end() - k.sumsOf(size), sums.end()), scales);
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
