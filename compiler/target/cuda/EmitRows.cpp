//===- EmitRows.cpp - rows by index ---------------------------------------===//
//
// An index below 0 counts from the end; one out of range reads NaN (0 for
// integers), adds nothing, and is recorded.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/PlainKernel.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;
using nn::tensorType;

namespace {
/// table [outer, axis, inner], ids [ids], rows [outer, ids, inner].
struct Rows {
  int64_t outer = 1, axis = 0, inner = 1, ids = 0;
  Type element, idType;

  Rows(Value table, Value indices, int64_t at) {
    ArrayRef<int64_t> shape = tensorType(table).getShape();
    for (int64_t i = 0; i < at; ++i)
      outer *= shape[i];
    for (int64_t size : shape.drop_front(at + 1))
      inner *= size;
    axis = shape[at];
    ids = tensorType(indices).getNumElements();
    element = tensorType(table).getElementType();
    idType = tensorType(indices).getElementType();
  }

  /// Elements that one access of the table or the rows can move when they
  /// start at these bytes.
  int64_t width(ArrayRef<int64_t> starts) const {
    int64_t bytes = elementBytes(element), width = 16 / bytes;
    auto fits = [&] {
      return inner % width == 0 && llvm::all_of(starts, [&](int64_t start) {
               return start % (width * bytes) == 0;
             });
    };
    while (width > 1 && !fits())
      width /= 2;
    return width;
  }
};

/// The row that an index names, as i64, and whether there is one.
struct Row {
  Value number, inside;
};
} // namespace

static Row rowOf(PlainKernel &k, const Rows &rows, Value ids, Value at) {
  Value id = k.load(ids, rows.idType, at);
  if (!rows.idType.isInteger(64))
    id = arith::ExtSIOp::create(k.b, k.b.getI64Type(), id);
  Value negative =
      arith::CmpIOp::create(k.b, arith::CmpIPredicate::slt, id, k.integer(0));
  Value number = k.select(negative, k.add(id, k.integer(rows.axis)), id);
  return {number, k.less(number, rows.axis)};
}

/// fault[0] = 1, fault[1] = id, fault[2] = axis.
static void recordFault(PlainKernel &k, const Rows &rows, Value ids, Value at,
                        Value inside, Value fault) {
  Value outside = arith::XOrIOp::create(
      k.b, inside, arith::ConstantIntOp::create(k.b, 1, 1));
  k.when(outside, [&] {
    Value id = k.load(ids, rows.idType, at);
    if (!rows.idType.isInteger(64))
      id = arith::ExtSIOp::create(k.b, k.b.getI64Type(), id);
    k.store(id, fault, k.integer(1));
    k.store(k.integer(rows.axis), fault, k.integer(2));
    k.store(k.integer(1), fault, k.integer(0));
  });
}

/// What an index out of range reads, as raw bits.
static Value missing(PlainKernel &k, Type element, Type raw) {
  APInt bits(element.getIntOrFloatBitWidth(), 0);
  if (auto type = dyn_cast<FloatType>(element))
    bits = APFloat::getNaN(type.getFloatSemantics()).bitcastToAPInt();
  Type scalar = getElementTypeOrSelf(raw);
  TypedAttr one = IntegerAttr::get(
      scalar, bits.zextOrTrunc(scalar.getIntOrFloatBitWidth()));
  if (auto vector = dyn_cast<VectorType>(raw))
    one = SplatElementsAttr::get(vector, one);
  return arith::ConstantOp::create(k.b, one);
}

static KernelCode gatherKernel(ModuleOp module, StringRef name, nn::GatherOp op,
                               ArrayRef<Placement> places,
                               ArrayRef<Buffer> buffers) {
  Rows rows(op.getX(), op.getIndices(), op.getAxis());
  KernelArgument arguments[] = {argumentOf(places[0], rows.element),
                                argumentOf(places[1], rows.idType),
                                argumentOf(places[2], rows.element),
                                {kFaultBuffer, 0}};
  PlainKernel k(module, name, arguments);
  int64_t bytes = elementBytes(rows.element);
  int64_t width = rows.width(
      {startOf(arguments[0], buffers), startOf(arguments[2], buffers)});
  Type scalar = k.b.getIntegerType(8 * bytes);
  Type moved = width == 1 ? scalar : Type(VectorType::get({width}, scalar));
  int64_t parts = rows.inner / width;
  Value item = k.beginItems(rows.outer * rows.ids * parts);
  SmallVector<Value> at = k.indices(item, {rows.outer, rows.ids, parts});
  Row row = rowOf(k, rows, k.argument(1), at[1]);
  recordFault(k, rows, k.argument(1), at[1], row.inside, k.argument(3));
  Value number = k.select(row.inside, row.number, k.integer(0));
  Value part = k.times(at[2], width);
  Value from = k.add(
      k.times(k.add(k.times(at[0], rows.axis), number), rows.inner), part);
  if (rows.axis) {
    Value value = k.load(k.argument(0), moved, from, width * bytes);
    value = k.select(row.inside, value, missing(k, rows.element, moved));
    k.store(value, k.argument(2), k.times(item, width), width * bytes);
  } else {
    k.store(missing(k, rows.element, moved), k.argument(2),
            k.times(item, width), width * bytes);
  }
  return k.finish();
}

/// Whether any lane of the warp says so, and which ones.
static Value ballot(PlainKernel &k, Value condition) {
  return NVVM::VoteSyncOp::create(k.b, k.b.getI32Type(),
                                  arith::ConstantIntOp::create(k.b, -1, 32),
                                  condition, NVVM::VoteSyncKind::ballot);
}

namespace {
/// A block for each index that is the first of its row: it adds all updates of
/// the row in ascending order, so repeated indices have one result. Its threads
/// look for equal indices together. Most rows have no other; else they list
/// them in shared memory, a tile at a time, and have a part of the row each: a
/// frequent index (a word like "the") would keep one warp busy for longer than
/// all others.
class ScatterEmitter {
public:
  ScatterEmitter(ModuleOp module, StringRef name, nn::ScatterAddOp op,
                 ArrayRef<Placement> places, ArrayRef<Buffer> buffers)
      : op(op), rows(op.getY(), op.getIndices(), op.getAxis()),
        k(module, name,
          {argumentOf(places[0], rows.idType),
           argumentOf(places[1], rows.element),
           argumentOf(places[2], rows.element),
           {kFaultBuffer, 0}}),
        word(k.b.getI32Type()) {
    width = rows.width({startOf(k.code.arguments[1], buffers),
                        startOf(k.code.arguments[2], buffers)});
    type = width == 1 ? rows.element
                      : Type(VectorType::get({width}, rows.element));
  }

  FailureOr<KernelCode> run() {
    const int64_t parts = rows.inner / width,
                  strips = llvm::divideCeil(parts, kThreads),
                  blocks = rows.outer * rows.ids * strips;
    if (blocks > std::numeric_limits<int32_t>::max())
      return op->emitError("is too large for a GPU kernel: ")
             << rows.outer * rows.ids << " rows of " << parts
             << " points; use smaller microbatches";
    k.beginBlocks(blocks, kThreads);
    k.setLeastBlocks(3); // what is read at once needs more than 64 registers
    k.code.sharedBytes = kWordBytes * (kWarp + kTile);
    threadWord = threadNumber(k.b);
    thread = k.wide(threadWord);
    lane = arith::RemUIOp::create(k.b, thread, k.integer(kWarp));
    warp = arith::DivUIOp::create(k.b, thread, k.integer(kWarp));
    SmallVector<Value> at =
        k.indices(k.wide(blockNumber(k.b)), {rows.outer, rows.ids, strips});
    outer = at[0];
    index = at[1];
    Row mine = rowOf(k, rows, k.argument(0), index);
    row = mine.number;
    fromEnd = k.add(row, k.integer(-rows.axis));
    recordFault(k, rows, k.argument(0), index, mine.inside, k.argument(3));
    Value part = k.add(k.times(at[2], kThreads), thread);
    Value isFirst = k.equal(isNamed(k.integer(0), index), none());
    k.when(k.both(mine.inside, isFirst),
           [&] { addRow(part, k.less(part, parts)); });
    return k.finish();
  }

private:
  static constexpr int64_t kThreads = 256, kEach = 4, kAtOnce = 8, kAhead = 8;
  static constexpr int64_t kTile = kThreads * kEach, kWordBytes = 4;
  static_assert(kTile == kWarp * kWarp); // a word of each warp's lane

  Value number(int64_t value) {
    return arith::ConstantIntOp::create(k.b, value, 32);
  }
  /// Of the 32 words that tell what the warps have found, and behind them the
  /// tile's list.
  Value wordAt(Value at) { return k.pointer(sharedMemory(k.b, 0), word, at); }
  Value listAt(Value at) {
    return k.pointer(sharedMemory(k.b, kWordBytes * kWarp), word, at);
  }
  Value read(Value pointer) {
    return LLVM::LoadOp::create(k.b, word, pointer, kWordBytes);
  }
  void write(Value value, Value pointer) {
    LLVM::StoreOp::create(k.b, value, pointer, kWordBytes);
  }
  Value bitsOf(Value value) { return LLVM::CtPopOp::create(k.b, word, value); }
  Value isSome(Value value) {
    return arith::CmpIOp::create(k.b, arith::CmpIPredicate::ne, value,
                                 number(0));
  }

  /// Whether the thread's index in the `tile`-th run of so many behind `base`
  /// is one below `end` and names the block's row.
  Value matches(Value base, int64_t tile, Value end) {
    auto narrow = [&](Value wide) -> Value {
      return arith::TruncIOp::create(k.b, word, wide);
    };
    Value at = k.add(k.add(narrow(base), threadWord), number(tile * kThreads));
    Value inside =
        arith::CmpIOp::create(k.b, arith::CmpIPredicate::ult, at, narrow(end));
    Value safe = k.select(inside, at, narrow(index));
    Value id = k.load(k.argument(0), rows.idType, k.wide(safe));
    if (!rows.idType.isInteger(64))
      id = arith::ExtSIOp::create(k.b, k.b.getI64Type(), id);
    Value same =
        arith::OrIOp::create(k.b, k.equal(id, row), k.equal(id, fromEnd));
    return k.both(inside, same);
  }

  /// Leaves a word of each warp for each of its `found`; which words of the
  /// block are not 0.
  Value share(ArrayRef<Value> found) {
    for (auto [i, bits] : llvm::enumerate(found))
      k.when(k.equal(lane, k.integer(0)), [&, i = i, bits = bits] {
        write(bits, wordAt(k.add(warp, k.integer(i * (kThreads / kWarp)))));
      });
    barrier(k.b);
    const auto words = static_cast<int64_t>(found.size()) * kThreads / kWarp;
    Value there = k.less(lane, words);
    Value mine = read(wordAt(k.select(there, lane, k.integer(0))));
    return ballot(k, k.both(there, isSome(mine)));
  }

  Value none() { return arith::ConstantIntOp::create(k.b, 0, 1); }

  /// Whether an index from `begin` on below `end` names the row. Several are
  /// read at a time.
  Value isNamed(Value begin, Value end) {
    auto seen = k.loop(begin, end, kAhead * kThreads, {none()},
                       [&](Value base, PlainKernel::Values &now) {
                         for (int64_t i = 0; i < kAhead; ++i)
                           now[0] = arith::OrIOp::create(k.b, now[0],
                                                         matches(base, i, end));
                       });
    Value some = share({ballot(k, seen[0])});
    barrier(k.b); // before the words are written again
    return isSome(some);
  }

  void addRow(Value part, Value inside) {
    const int64_t bytes = width * elementBytes(rows.element);
    column = k.times(k.select(inside, part, k.integer(0)), width);
    Value to = k.add(k.times(k.add(k.times(outer, rows.axis), row), rows.inner),
                     column);
    Value more = isNamed(k.add(index, k.integer(1)), k.integer(rows.ids));
    Value old = k.load(k.argument(2), type, to, bytes);
    auto repeats = scf::IfOp::create(k.b, type, more, /*withElse=*/true);
    {
      OpBuilder::InsertionGuard guard(k.b);
      k.b.setInsertionPointToStart(repeats.thenBlock());
      scf::YieldOp::create(k.b, addTiles(old));
      k.b.setInsertionPointToStart(repeats.elseBlock());
      Value sum = arith::AddFOp::create(k.b, old, update(index));
      scf::YieldOp::create(k.b, sum);
    }
    k.when(inside,
           [&] { k.store(repeats.getResult(0), k.argument(2), to, bytes); });
  }

  /// The thread's part of the row that the index at `at` adds.
  Value update(Value at) {
    Value from =
        k.add(k.times(k.add(k.times(outer, rows.ids), at), rows.inner), column);
    return k.load(k.argument(1), type, from,
                  width * elementBytes(rows.element));
  }

  Value addTiles(Value sum) {
    Value first =
        k.times(arith::DivUIOp::create(k.b, index, k.integer(kTile)), kTile);
    return k
        .loop(first, k.integer(rows.ids), kTile, {sum},
              [&](Value base, PlainKernel::Values &now) {
                now[0] = addTile(now[0], base);
              })
        .front();
  }

  Value addTile(Value sum, Value base) {
    SmallVector<Value> same, found;
    for (int64_t i = 0; i < kEach; ++i) {
      same.push_back(matches(base, i, k.integer(rows.ids)));
      found.push_back(ballot(k, same.back()));
    }
    Value some = isSome(share(found));
    auto isThere = scf::IfOp::create(k.b, type, some, /*withElse=*/true);
    {
      OpBuilder::InsertionGuard guard(k.b);
      k.b.setInsertionPointToStart(isThere.thenBlock());
      Value count = list(same, found);
      barrier(k.b);
      scf::YieldOp::create(k.b, addListed(sum, base, count));
      k.b.setInsertionPointToStart(isThere.elseBlock());
      scf::YieldOp::create(k.b, sum);
    }
    barrier(k.b); // before words and list are written again
    return isThere.getResult(0);
  }

  /// Writes down where in the tile the row is named, in order; how often.
  Value list(ArrayRef<Value> same, ArrayRef<Value> found) {
    Value count = number(0);
    SmallVector<Value> before(kEach, number(0));
    for (int64_t i = 0; i < kWarp; ++i) {
      Value bits = bitsOf(read(wordAt(k.integer(i))));
      for (int64_t j = 0; j < kEach; ++j) {
        Value own = k.add(warp, k.integer(j * (kThreads / kWarp)));
        Value isBefore = arith::CmpIOp::create(k.b, arith::CmpIPredicate::ult,
                                               k.integer(i), own);
        before[j] = arith::AddIOp::create(k.b, before[j],
                                          k.select(isBefore, bits, number(0)));
      }
      count = arith::AddIOp::create(k.b, count, bits);
    }
    Value one = number(1), place = arith::TruncIOp::create(k.b, word, lane);
    Value lower =
        arith::SubIOp::create(k.b, arith::ShLIOp::create(k.b, one, place), one);
    for (int64_t j = 0; j < kEach; ++j)
      k.when(same[j], [&] {
        Value behind = bitsOf(arith::AndIOp::create(k.b, found[j], lower));
        Value at = arith::AddIOp::create(k.b, before[j], behind);
        Value named = k.add(thread, k.integer(j * kThreads));
        write(arith::TruncIOp::create(k.b, word, named), listAt(k.wide(at)));
      });
    return count;
  }

  /// Several updates are under way at a time.
  Value addListed(Value sum, Value base, Value count) {
    Value end = k.wide(count);
    return k
        .loop(k.integer(0), end, kAtOnce, {sum},
              [&](Value first, PlainKernel::Values &now) {
                SmallVector<std::pair<Value, Value>> updates;
                for (int64_t i = 0; i < kAtOnce; ++i) {
                  Value at = k.add(first, k.integer(i));
                  Value there = arith::CmpIOp::create(
                      k.b, arith::CmpIPredicate::ult, at, end);
                  Value named = k.add(
                      base, k.wide(read(listAt(k.select(there, at, first)))));
                  updates.push_back({there, update(named)});
                }
                for (auto [there, update] : updates)
                  now[0] = k.select(there,
                                    arith::AddFOp::create(k.b, now[0], update),
                                    now[0]);
              })
        .front();
  }

  nn::ScatterAddOp op;
  Rows rows;
  PlainKernel k;
  Type word, type;
  int64_t width = 1;
  Value threadWord, thread, lane, warp, outer, index, column;
  Value row, fromEnd; // the two indices that name it
};
} // namespace

FailureOr<KernelCode> cuda::emitRowsKernel(ModuleOp module, StringRef name,
                                           Operation *op,
                                           ArrayRef<Placement> places,
                                           ArrayRef<Buffer> buffers) {
  Value indices = isa<nn::GatherOp>(op) ? op->getOperand(1) : op->getOperand(0);
  Type idType = tensorType(indices).getElementType();
  if (!idType.isInteger(32) && !idType.isInteger(64))
    return op->emitError("has indices that are neither i32 nor i64");
  if (auto gather = dyn_cast<nn::GatherOp>(op))
    return gatherKernel(module, name, gather, places, buffers);
  auto scatter = cast<nn::ScatterAddOp>(op);
  Type element = tensorType(scatter.getY()).getElementType();
  if (!element.isF32() && !element.isF64())
    return op->emitError("the GPU kernels have no element type ") << element;
  return ScatterEmitter(module, name, scatter, places, buffers).run();
}
