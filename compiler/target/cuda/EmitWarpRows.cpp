//===- EmitWarpRows.cpp - column sums beside sums of short rows -----------===//
//
// A warp has a row, and so one warp alone would walk the rows of a chunk: too
// little is under way then to fill a device. Several warps of a block take a
// row each; what they add to the columns they leave in shared memory, and all
// threads of the block add that up in the order of the rows: the bits are those
// of one warp.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/KernelEmitter.h"
#include "compiler/target/fusion/EmitElementwise.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;

/// Of a chunk; whole rounds of them are a chunk's rows.
constexpr int64_t kMostWarps = 8;
static_assert(kChunkRows % kMostWarps == 0);
/// Threads of a multiprocessor that leave each 128 registers, enough for a few
/// points that do not take many at once (rows of GPT-2 in bf16); of blocks of
/// up to four warps 168, for those that keep what they read from phase to
/// phase; or 255.
constexpr int64_t kThreadsAtOnce = 512, kKeepAtOnce = 384, kFewerAtOnce = 256;
constexpr int64_t kFewPoints = 6, kFewRead = 64;

/// Bytes that a row leaves for the sums before `column`, each aligned for
/// vectors of any type.
int64_t KernelEmitter::leftBytes(size_t column) const {
  int64_t bytes = 0;
  for (const Access &partial : ArrayRef(partials).take_front(column))
    bytes += static_cast<int64_t>(
        llvm::alignTo(columns() * elementBytes(partial.element), 16));
  return bytes;
}

/// As many as have room for what their rows leave.
int64_t KernelEmitter::warpsOfChunk() const {
  if (rowThreads != kWarp || tail)
    return 1;
  int64_t warps = kMostWarps;
  while (warps > 1 && (warps * leftBytes(partials.size()) > kSharedLimit ||
                       warps / 2 >= product(plan.rows)))
    warps /= 2;
  return warps;
}

/// What warp `warp` leaves of a point for a column.
KernelEmitter::Value KernelEmitter::leftAt(size_t column, Value warp,
                                           Value point) {
  auto times32 = [&](Value x, int64_t factor) -> Value {
    return arith::MulIOp::create(b, x,
                                 arith::ConstantIntOp::create(b, factor, 32));
  };
  Value at = arith::AddIOp::create(
      b, times32(warp, leftBytes(partials.size())),
      times32(point, width * elementBytes(partials[column].element)));
  Value base = sharedMemory(b, leftBytes(column));
  return LLVM::GEPOp::create(b, base.getType(), b.getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{at});
}

static unsigned alignmentOf(Type type) {
  int64_t bytes = elementBytes(getElementTypeOrSelf(type));
  if (auto vector = dyn_cast<VectorType>(type))
    bytes *= vector.getNumElements();
  return std::min<int64_t>(bytes, 16);
}

void KernelEmitter::leave(size_t column, Value x) {
  guarded(pointInside, [&] {
    Value memory = toMemory(x);
    LLVM::StoreOp::create(b, memory, leftAt(column, chunkWarp, pointNumber),
                          alignmentOf(memory.getType()));
  });
}

/// The points whose columns are this thread's to add up, with a condition where
/// there may be none.
SmallVector<std::pair<KernelEmitter::Value, KernelEmitter::Value>>
KernelEmitter::ownColumns() {
  const int64_t threads = kWarp * chunkWarps;
  SmallVector<std::pair<Value, Value>> own;
  auto word = [&](int64_t number) -> Value {
    return arith::ConstantIntOp::create(b, number, 32);
  };
  for (int64_t start = 0; start < points(); start += threads) {
    Value point = arith::AddIOp::create(b, threadNumber(b), word(start));
    Value inside;
    if (start + threads > points()) {
      inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, point,
                                     word(points()));
      point = arith::MinUIOp::create(b, point, word(points() - 1));
    }
    own.push_back({point, inside});
  }
  return own;
}

/// Adds what the warps have left to the sums, row by row. `isThere` says of
/// each warp whether it has a row; null: all have.
void KernelEmitter::takeLeft(Running &sums, ArrayRef<Value> isThere) {
  size_t next = 0;
  for (auto [point, inside] : ownColumns())
    for (auto [column, op] : llvm::enumerate(columnOps)) {
      Value &sum = sums[next++];
      Type memory = memoryType(sum.getType());
      for (int64_t warp = 0; warp < chunkWarps; ++warp) {
        Value at =
            leftAt(column, arith::ConstantIntOp::create(b, warp, 32), point);
        Value one =
            fromMemory(LLVM::LoadOp::create(b, memory, at, alignmentOf(memory)),
                       getElementTypeOrSelf(sum.getType()));
        Value added = emitCombine(b, machine, op.getKind(), sum, one);
        sum = isThere.empty()
                  ? added
                  : arith::SelectOp::create(b, isThere[warp], added, sum);
      }
    }
}

void KernelEmitter::emitWarpRows() {
  const int64_t threads = kWarp * chunkWarps;
  setShape(points() ? outerCount() * plan.chunks : 0, threads);
  code.sharedBytes = chunkWarps * leftBytes(partials.size());
  Value thread = threadNumber(b);
  auto word = [&](int64_t number) -> Value {
    return arith::ConstantIntOp::create(b, number, 32);
  };
  within = arith::AndIOp::create(b, thread, word(kWarp - 1));
  chunkWarp = arith::DivUIOp::create(b, thread, word(kWarp));
  choosePoints();
  const bool isLight = share() <= kFewPoints && readRegisters() <= kFewRead;
  const int64_t atOnce = unrolled && keepsPoints ? kKeepAtOnce
                         : isLight               ? kThreadsAtOnce
                                                 : kFewerAtOnce;
  code.function->setAttr(kLeastBlocksAttr,
                         b.getI64IntegerAttr(atOnce / threads));
  Value chunk = arith::ExtUIOp::create(b, b.getI64Type(), blockNumber(b));
  placePartials(chunk);
  const auto [first, last] = rowsOfChunk(chunk);
  Running sums;
  for (size_t i = 0, n = ownColumns().size(); i < n; ++i)
    llvm::append_range(sums, columnIdentities());
  auto loop = scf::ForOp::create(b, first, last, integer(chunkWarps), sums);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Running inner(loop.getRegionIterArgs());
    emitRound(loop.getInductionVar(), last, inner);
    b.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(b, inner);
  }
  size_t next = 0;
  for (auto [point, inside] : ownColumns()) {
    enterPoint(point);
    guarded(inside, [&] {
      for (const Access &access : partials)
        storeAt(access, loop.getResult(next++));
    });
  }
}

/// A row for each warp, from `first` on.
void KernelEmitter::emitRound(Value first, Value last, Running &sums) {
  Value row = add(first, arith::ExtUIOp::create(b, b.getI64Type(), chunkWarp));
  SmallVector<Value> isThere;
  auto isRow = [&](Value number) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, last);
  };
  if (product(plan.rows) % chunkWarps) {
    for (int64_t warp = 0; warp < chunkWarps; ++warp)
      isThere.push_back(isRow(add(first, integer(warp))));
    rowInside = isRow(row);
    row = arith::MinUIOp::create(b, row,
                                 arith::SubIOp::create(b, last, integer(1)));
  }
  enterRow(row);
  emitRow(nullptr);
  rowInside = nullptr;
  barrier(b);
  takeLeft(sums, isThere);
  barrier(b); // the next rows are left at the same place
}
