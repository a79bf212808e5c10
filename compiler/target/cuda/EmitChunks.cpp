//===- EmitChunks.cpp - sums of columns over chunks of rows ---------------===//
#include "compiler/target/cuda/KernelEmitter.h"
#include "compiler/target/fusion/EmitElementwise.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;

/// Rows of a chunk that are written out one after the other.
constexpr int64_t kRowsInTurn = 4;
static_assert(kChunkRows % kRowsInTurn == 0);
/// Threads of a multiprocessor that have the registers to read all of them
/// ahead, and most of these.
constexpr int64_t kThreadsInTurn = 1024, kMostInTurn = 24;

/// A block takes the rows of a chunk one after the other. Without row
/// reductions columns are dealt out to blocks as well.
void KernelEmitter::emitChunks() {
  if (plan.nest.rowReductions.empty()) {
    columnBlocks = std::max<int64_t>(1, llvm::divideCeil(points(), kThreads));
    const int64_t each = llvm::divideCeil(points(), columnBlocks);
    rowThreads = std::max(llvm::alignTo(each, kWarp), uint64_t(kWarp));
  } else {
    chooseRowThreads(kMostRowThreads);
    rowThreads = std::max(rowThreads, kWarp);
    chunkWarps = warpsOfChunk();
    if (chunkWarps > 1)
      return emitWarpRows();
  }
  setShape(points() ? outerCount() * plan.chunks * columnBlocks : 0,
           rowThreads);
  Value chunk = blockNumber(b);
  within = threadNumber(b);
  if (columnBlocks > 1) {
    Value block = arith::RemUIOp::create(b, chunk, word(b, columnBlocks));
    chunk = arith::DivUIOp::create(b, chunk, word(b, columnBlocks));
    within = arith::AddIOp::create(
        b, arith::MulIOp::create(b, block, word(b, rowThreads)), within);
  }
  int64_t all = rowThreads;
  if (columnBlocks > 1) // one point a thread
    rowThreads *= columnBlocks;
  choosePoints();
  rowThreads = all;
  chunk = wide(b, chunk);
  placePartials(chunk);
  emitChunkRows(chunk);
}

std::pair<Value, Value> KernelEmitter::rowsOfChunk(Value chunk) {
  int64_t rows = product(plan.rows);
  Value outer = arith::DivUIOp::create(b, chunk, integer(plan.chunks));
  Value inOuter = arith::RemUIOp::create(b, chunk, integer(plan.chunks));
  Value first = times(inOuter, kChunkRows);
  Value last =
      arith::MinSIOp::create(b, add(first, integer(kChunkRows)), integer(rows));
  Value base = times(outer, rows);
  return {add(base, first), add(base, last)};
}

/// Registers for what a thread reads of rows in turn, and its sums.
int64_t KernelEmitter::registersInTurn() {
  int64_t bytes = 0;
  for (auto &[value, access] : leaves)
    if (levelOf(value) == fusion::Level::Lane)
      bytes += width * elementBytes(access.element) *
               (isOfAllRows(access) ? 1 : kRowsInTurn);
  for (const Access &access : partials)
    bytes += width * elementBytes(access.element);
  return static_cast<int64_t>(unrolledPoints.size()) * bytes / 4;
}

/// What all rows in turn read is under way before the first one writes.
void KernelEmitter::emitRowsAhead(Value first, Running &sums) {
  struct Row {
    SmallVector<Value> indices;
    std::vector<Value> pointers;
    SmallVector<llvm::DenseMap<Value, Value>> points;
    llvm::DenseMap<Value, Value> values;
  };
  auto forPointers = [&](llvm::function_ref<void(Value &)> use) {
    for (auto &[value, access] : leaves)
      use(access.rowPointer);
    for (Access &access : targets)
      use(access.rowPointer);
  };
  SmallVector<size_t> written, summed(columnOps.size());
  for (size_t i = 0; i < targets.size(); ++i)
    if (!isRowTarget(i))
      written.push_back(i);
  std::iota(summed.begin(), summed.end(), 0);
  SmallVector<Row> rows(kRowsInTurn);
  phase = 0;
  startReductions();
  for (auto [i, row] : llvm::enumerate(rows)) {
    enterRow(add(first, integer(static_cast<int64_t>(i))));
    for (auto &[value, access] : leaves) {
      if (levelOf(value) != fusion::Level::Lane || !isOfAllRows(access))
        continue; // not the same in all rows
      if (i == 0)
        forPoints({}, [&](Running &) { evaluate(value); });
      else
        for (auto [point, before] :
             llvm::zip_equal(unrolledPoints, rows.front().points))
          point.values[value] = before.lookup(value);
    }
    readPoints(written, summed);
    row.indices = rowIndices;
    forPointers([&](Value &pointer) { row.pointers.push_back(pointer); });
    for (Point &point : unrolledPoints)
      row.points.push_back(point.values);
    row.values = atRow;
  }
  for (Row &row : rows) {
    rowIndices = row.indices;
    size_t next = 0;
    forPointers([&](Value &pointer) { pointer = row.pointers[next++]; });
    for (auto [point, values] : llvm::zip_equal(unrolledPoints, row.points))
      point.values = values;
    atRow = row.values;
    rowAnchor = nullptr;
    emitRow(&sums);
  }
}

void KernelEmitter::emitChunkRows(Value chunk) {
  const auto [first, last] = rowsOfChunk(chunk);
  Running sums;
  if (unrolled)
    for (size_t i = 0; i < unrolledPoints.size(); ++i)
      llvm::append_range(sums, columnIdentities());
  else
    clearPartials();
  // Behind the first of several rows addresses differ by constants alone.
  const bool isShort = unrolled && plan.nest.rowReductions.empty() &&
                       product(plan.rows) % kRowsInTurn == 0;
  const bool isAhead = isShort && keepsPoints && phaseCount == 1 &&
                       registersInTurn() <= kMostInTurn;
  const int64_t each = isShort ? kRowsInTurn : 1;
  if (isAhead)
    code.function->setAttr(
        kLeastBlocksAttr,
        b.getI64IntegerAttr(std::max<int64_t>(1, kThreadsInTurn / rowThreads)));
  auto loop = scf::ForOp::create(b, first, last, integer(each), sums);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Running inner(loop.getRegionIterArgs());
    if (isAhead)
      emitRowsAhead(loop.getInductionVar(), inner);
    for (int64_t i = 0; i < each && !isAhead; ++i) {
      enterRow(add(loop.getInductionVar(), integer(i)));
      emitRow(unrolled ? &inner : nullptr);
    }
    if (rowThreads > kWarp && !plan.nest.rowReductions.empty())
      barrier(b); // shared memory is written again in the next row
    if (!inner.empty()) {
      b.setInsertionPointToEnd(loop.getBody());
      scf::YieldOp::create(b, inner);
    }
  }
  if (unrolled)
    storePartials(Running(loop.getResults()));
}

Running KernelEmitter::columnIdentities() {
  Running none;
  for (auto [op, access] : llvm::zip_equal(columnOps, partials))
    none.push_back(emitIdentity(b, op.getKind(), laneType(access.element)));
  return none;
}

/// Chunks are as far apart as the sums have columns, which with a tail are not
/// whole points: a stride, so that isAligned sees it.
void KernelEmitter::placePartials(Value chunk) {
  SmallVector<int64_t> sizes(plan.walk);
  sizes.push_back(plan.lane);
  denseColumns.assign(rowLoops, columns());
  denseColumns.append(denseStrides(sizes));
  if (plan.lane == 1)
    denseColumns.back() = 0;
  for (Access &access : partials) {
    access.rowPointer = advance(pointers[access.argument], access.element,
                                times(chunk, columns()));
    access.strides = denseColumns;
  }
}

/// The sums of a thread's columns are its own, in memory or in registers.
void KernelEmitter::clearPartials() {
  forPoints({}, [&](Running &) {
    for (auto [value, access] : llvm::zip_equal(columnIdentities(), partials))
      storeAt(access, value);
  });
}

void KernelEmitter::addColumn(size_t column, Running *sums) {
  nn::ReduceOp op = columnOps[column];
  Value x = widened(b, machine, spread(evaluate(op.getX())));
  if (chunkWarps > 1)
    return leave(column, x);
  if (!sums) {
    const Access &access = partials[column];
    storeAt(access, emitCombine(b, machine, op.getKind(), loadAt(access), x));
    return;
  }
  Value &sum = (*sums)[pointIndex * columnOps.size() + column];
  sum = emitCombine(b, machine, op.getKind(), sum, x);
}

void KernelEmitter::storePartials(const Running &sums) {
  forPoints({}, [&](Running &) {
    guarded(pointInside, [&] {
      for (auto [i, access] : llvm::enumerate(partials))
        storeAt(access, sums[pointIndex * columnOps.size() + i]);
    });
  });
}
