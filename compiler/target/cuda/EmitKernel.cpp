//===- EmitKernel.cpp - a kernel plan as a device function ----------------===//
#include "compiler/target/cuda/EmitKernel.h"
#include "compiler/target/cuda/KernelEmitter.h"
#include "compiler/target/fusion/EmitElementwise.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;
using nn::tensorType;

/// The widest access, in bytes.
constexpr int64_t kWidest = 16;
/// Lanes of a row's sums: 16 bytes of f32. Part of the result's bits.
constexpr int64_t kSumLanes = 4;
/// Most points of a thread that are unrolled, and most values that they keep:
/// without sums of columns, where a thread may have all 255 registers, more.
constexpr int64_t kMostUnrolled = 8, kMostKept = 64, kMostKeptAlone = 160;
constexpr int64_t kMostUnrolledOps = 512;
/// Most registers for what a thread reads at once, of 255.
constexpr int64_t kMostRead = 150;
/// From so many lanes on a row may have a tail: of a kernel without row
/// reductions, and of one with them, whose shorter rows stay in registers.
constexpr int64_t kTailLanes = 64, kTailSums = 4096;
/// Blocks with a long row that share a multiprocessor where there are many.
constexpr int64_t kLongRows = 3, kManyRows = 1024;
/// Blocks beside each other whose rows are in shared memory.
constexpr int64_t kHeldRows = 2;
/// From so many partial sums on, several threads add those of a point.
constexpr int64_t kManyPartials = 32;
/// From so many on a block has fewer points, and each of them more threads: few
/// multiprocessors would read all of them else.
constexpr int64_t kMostPartials = 256, kFewPoints = 8;

/// Kernels with sums of rows and of columns, which need all of their registers,
/// round one number after the other.
static const Machine &machineOf(const KernelPlan &plan) {
  static const Machine sparing = {.nvptx = true},
                       ordinary = {.nvptx = true, .roundsPairs = true};
  return plan.nest.rowReductions.empty() || plan.nest.columnReductions.empty()
             ? ordinary
             : sparing;
}

KernelEmitter::KernelEmitter(ModuleOp module, StringRef name,
                             const KernelPlan &plan, ArrayRef<Buffer> buffers,
                             bool mayHold)
    : PointEmitter(module.getContext(), plan, machineOf(plan)), module(module),
      name(name.str()), buffers(buffers), mayHold(mayHold) {}

/// Rows and the points of one are 32-bit numbers, and so are blocks.
LogicalResult KernelEmitter::checkSize() {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - kThreads;
  bool alone = columnOps.empty() && plan.nest.rowReductions.empty();
  int64_t rows = plan.rowCount(), each = points() + tail;
  if (alone ? each == 0 || rows <= kMost * kWarp / each
            : rows <= kMost && each <= kMost)
    return success();
  return plan.group->ops.front()->emitError("is too large for a GPU kernel: ")
         << rows << " rows of " << each << " points; use smaller microbatches";
}

FailureOr<KernelCode> KernelEmitter::run() {
  collectAccesses();
  chooseWidth();
  if (failed(checkSize()))
    return failure();
  countPhases();
  beginFunction();
  if (!columnOps.empty())
    emitChunks();
  else if (!plan.nest.rowReductions.empty())
    emitRows();
  else
    emitPoints();
  b.setInsertionPointToEnd(&code.function.front());
  func::ReturnOp::create(b);
  if (unsupported)
    return unsupported->emitError("no GPU code for ")
           << unsupported->getName() << " on this element type";
  code.arguments = arguments;
  return code;
}

//===----------------------------------------------------------------------===//
// Set-up
//===----------------------------------------------------------------------===//

/// Not where others count on whole points alone.
bool KernelEmitter::mayHaveTail(int64_t least) const {
  return plan.lane >= least && plan.walk.empty() &&
         (columnOps.empty() || !plan.nest.rowReductions.empty()) &&
         llvm::none_of(plan.leaves, [](const auto &leaf) {
           return leaf.second.kind == Leaf::Partials;
         });
}

/// The lanes of a row's sums follow from its length alone: where its operands
/// lie, and what else the kernel does, is another matter where the program is
/// cut elsewhere.
void KernelEmitter::chooseSumWidth() {
  width = kSumLanes;
  if (!mayHaveTail(kTailSums))
    while (plan.lane % width)
      width /= 2;
  tail = plan.lane % width;
}

/// Whether all rows read the same, which caches then hold: it is of no account
/// how it is read.
bool KernelEmitter::isOfAllRows(const Access &access) const {
  return plan.rowCount() > 1 &&
         llvm::all_of(ArrayRef<int64_t>(access.strides).take_front(rowLoops),
                      [](int64_t stride) { return stride == 0; });
}

/// As many lanes as fill 16 bytes of the widest operand that comes from memory,
/// if at least half of the operands can be accessed so.
void KernelEmitter::chooseWidth() {
  if (!plan.nest.rowReductions.empty())
    return chooseSumWidth();
  const bool ends = mayHaveTail(kTailLanes);
  SmallVector<const Access *> contiguous;
  auto consider = [&](const Access &access) {
    if (access.strides.back() == 1)
      contiguous.push_back(&access);
  };
  for (auto &[value, access] : leaves)
    if (plan.leaves.find(value)->second.kind != Leaf::Index)
      consider(access);
  for (const Access &access : targets)
    consider(access);
  int64_t bytes = 1;
  for (const Access *access : contiguous)
    if (!isOfAllRows(*access))
      bytes = std::max(bytes, elementBytes(access->element));
  // Sums of columns take registers, and few blocks would fit side by side.
  const int64_t most = columnOps.empty() ? 8 : kSumLanes;
  for (width = std::min(most, kWidest / bytes); width > 1; width /= 2) {
    size_t aligned = llvm::count_if(
        contiguous, [&](const Access *access) { return isAligned(*access); });
    if ((ends || plan.lane % width == 0) && aligned &&
        2 * aligned >= contiguous.size()) {
      tail = plan.lane % width;
      return;
    }
  }
  width = 1;
}

void KernelEmitter::beginFunction() {
  b.setInsertionPointToEnd(module.getBody());
  SmallVector<Type> types(arguments.size(), pointerType);
  code.function = func::FuncOp::create(b, name, b.getFunctionType(types, {}));
  Block *body = code.function.addEntryBlock();
  b.setInsertionPointToStart(body);
  llvm::append_range(pointers, body->getArguments());
  // What does not depend on the thread goes before this.
  entryAnchor = integer(0).getDefiningOp();
}

void KernelEmitter::setShape(int64_t blocks, int64_t threads) {
  code.blocks = blocks;
  code.threads = threads;
  code.function->setAttr(kThreadsAttr, b.getI64IntegerAttr(threads));
  // What a thread has of a row stays, and what it reads at once.
  if (!plan.nest.rowReductions.empty() || partialThreads > 1)
    code.function->setAttr(kLeastBlocksAttr, b.getI64IntegerAttr(1));
}

int64_t KernelEmitter::share() const {
  return llvm::divideCeil(points(), rowThreads);
}

Value KernelEmitter::both(Value x, Value y) {
  if (!x || !y)
    return x ? x : y;
  return arith::AndIOp::create(b, x, y);
}

void KernelEmitter::guarded(Value condition, llvm::function_ref<void()> body) {
  if (!condition)
    return body();
  auto inside = scf::IfOp::create(b, condition, /*withElse=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(inside.thenBlock());
  body();
}

static Value below(ImplicitLocOpBuilder &b, Value number, Value end) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, end);
}

//===----------------------------------------------------------------------===//
// Points alone: a thread each
//===----------------------------------------------------------------------===//

void KernelEmitter::emitPoints() {
  for (const auto &[value, leaf] : plan.leaves)
    if (leaf.kind == Leaf::Partials && leaf.partials >= kManyPartials)
      return emitPointsOfPartials(leaf.partials >= kMostPartials ? kFewPoints
                                                                 : kWarp);
  int64_t total = plan.rowCount() * (points() + tail);
  setShape(llvm::divideCeil(total, kThreads), kThreads);
  Value point;
  if (total <= std::numeric_limits<int32_t>::max() - kThreads)
    point = wide(b, globalThread(b, kThreads));
  else
    point =
        add(times(wide(b, blockNumber(b)), kThreads), wide(b, threadNumber(b)));
  Value inside = total % kThreads ? below(b, point, integer(total)) : Value();
  guarded(inside, [&] {
    enterItem(point);
    writeItem();
  });
}

/// Moves to a point of the whole kernel.
void KernelEmitter::enterItem(Value item) {
  SmallVector<int64_t> sizes(plan.outer);
  sizes.append(plan.rows);
  sizes.append(plan.walk);
  sizes.push_back(plan.lane / width + tail);
  SmallVector<Value> indices = indicesOf(item, sizes);
  itemInRow = indices.pop_back_val();
  laneIndex = times(itemInRow, width);
  rowIndices.assign(indices.begin(), indices.begin() + rowLoops);
  walkIndices.assign(indices.begin() + rowLoops, indices.end());
  placeRow();
}

/// Writes all targets at the current point.
void KernelEmitter::writeItem() {
  auto all = [&] {
    for (size_t i = 0; i < targets.size(); ++i)
      write(i);
  };
  if (!tail)
    return all();
  Value isWhole = below(b, itemInRow, integer(points()));
  guarded(isWhole, all);
  // What the row's values are is not known outside of that.
  atRow.clear();
  Value isTail = arith::CmpIOp::create(b, arith::CmpIPredicate::uge, itemInRow,
                                       integer(points()));
  guarded(isTail, [&] {
    inTail(add(itemInRow, integer(points() * (width - 1))), all);
  });
}

/// Many partial sums: the threads of a block share those of so many points, a
/// power of two.
void KernelEmitter::emitPointsOfPartials(int64_t across) {
  int64_t total = plan.rowCount() * points();
  partialPoints = across;
  partialThreads = kThreads / across;
  setShape(llvm::divideCeil(total, across), kThreads);
  Value thread = threadNumber(b);
  within = arith::RemUIOp::create(b, thread, word(b, across));
  partialThread = arith::DivUIOp::create(b, thread, word(b, across));
  // All threads take part in the barriers.
  entryAnchor = integer(0).getDefiningOp();
  Value point = add(times(wide(b, blockNumber(b)), across), wide(b, within));
  Value inside = below(b, point, integer(total));
  enterItem(arith::MinUIOp::create(b, point, integer(total - 1)));
  for (size_t i = 0; i < targets.size(); ++i)
    evaluate(valueOf(i));
  Value first = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                      partialThread, word(b, 0));
  guarded(both(inside, first), [&] {
    for (size_t i = 0; i < targets.size(); ++i)
      write(i);
  });
}

//===----------------------------------------------------------------------===//
// Rows: some threads each
//===----------------------------------------------------------------------===//

/// Few threads for short rows, so that a thread has a handful of points; powers
/// of two up to `most`.
void KernelEmitter::chooseRowThreads(int64_t most) {
  constexpr int64_t kPointsOfWarp = kWarp * kMostUnrolled, kEach = 4;
  int64_t n = std::max<int64_t>(points(), 1);
  rowThreads = std::min<int64_t>(kWarp, llvm::PowerOf2Ceil(n));
  if (n > kPointsOfWarp)
    rowThreads =
        std::min<int64_t>(most, llvm::PowerOf2Ceil(llvm::divideCeil(n, kEach)));
}

void KernelEmitter::emitRows() {
  chooseRowThreads(kMostRowThreads);
  // Rows of several warps meet at barriers of the whole block.
  blockRows = rowThreads > kWarp ? 1 : kThreads / rowThreads;
  int64_t rows = plan.rowCount();
  setShape(llvm::divideCeil(rows, blockRows), rowThreads * blockRows);
  Value thread = threadNumber(b), row = blockNumber(b);
  within = thread;
  if (blockRows > 1) {
    within = arith::AndIOp::create(b, thread, word(b, rowThreads - 1));
    Value inBlock =
        arith::ShRUIOp::create(b, thread, word(b, llvm::Log2_64(rowThreads)));
    row = arith::AddIOp::create(
        b, arith::MulIOp::create(b, row, word(b, blockRows)), inBlock);
    // All threads of a warp take part in its shuffles.
    if (rows % blockRows) {
      rowInside = below(b, row, word(b, rows));
      row = arith::MinUIOp::create(b, row, word(b, rows - 1));
    }
  }
  choosePoints();
  chooseHeldRows();
  // Many long rows of one tensor, which each phase reads again: as many at once
  // as caches hold.
  const auto tensors = llvm::count_if(leaves, [&](const auto &leaf) {
    return levelOf(leaf.first) == fusion::Level::Lane;
  });
  if (!held.empty())
    code.function->setAttr(kLeastBlocksAttr, b.getI64IntegerAttr(kHeldRows));
  else if (!unrolled && rowThreads == kMostRowThreads && tensors <= 1 &&
           rows >= kManyRows)
    code.function->setAttr(kLeastBlocksAttr, b.getI64IntegerAttr(kLongRows));
  enterRow(wide(b, row));
  fetchHeldRows();
  emitRow(nullptr);
}

/// What the unrolled points of a thread are: the same in every row.
void KernelEmitter::choosePoints() {
  int64_t n = share(), kept = 1;
  for (auto &[value, access] : leaves)
    kept += levelOf(value) == fusion::Level::Lane;
  auto ops = static_cast<int64_t>(plan.group->ops.size());
  const bool fits = n <= kMostUnrolled && n * ops <= kMostUnrolledOps;
  const bool isAlone = columnOps.empty() && rowThreads <= kThreads;
  keepsPoints =
      n <= 1 || n * width * kept <= (isAlone ? kMostKeptAlone : kMostKept);
  // Where several warps share a chunk, sums of columns take no registers: they
  // are there for what a phase reads.
  unrolled =
      !tail &&
      (n <= 1 || (fits && (keepsPoints ||
                           (chunkWarps > 1 && readRegisters() <= kMostRead))));
  if (!unrolled)
    return;
  for (int64_t i = 0; i < n; ++i) {
    Point point;
    Value number = within;
    if (i)
      number = arith::AddIOp::create(b, number, word(b, i * rowThreads));
    if ((i + 1) * rowThreads > points()) {
      point.inside = below(b, number, word(b, points()));
      number = arith::MinUIOp::create(b, number, word(b, points() - 1));
    }
    enterPoint(number);
    point.walk = walkIndices;
    point.lane = laneIndex;
    point.number = number;
    unrolledPoints.push_back(std::move(point));
  }
}

void KernelEmitter::enterRow(Value row) {
  SmallVector<int64_t> sizes(plan.outer);
  sizes.append(plan.rows);
  rowIndices = indicesOf(row, sizes);
  placeRow();
  atRow.clear();
  rowAnchor = nullptr;
  for (Point &point : unrolledPoints)
    point.values.clear();
}

void KernelEmitter::emitRow(Running *columnSums) {
  for (phase = 0; phase < phaseCount; ++phase)
    emitPhase(columnSums);
  rowAnchor = nullptr;
  SmallVector<size_t> rowTargets;
  for (size_t i = 0; i < targets.size(); ++i)
    if (isRowTarget(i)) {
      evaluate(valueOf(i));
      rowTargets.push_back(i);
    }
  if (rowTargets.empty())
    return;
  Value first =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, within, word(b, 0));
  guarded(both(rowInside, first), [&] {
    for (size_t i : rowTargets)
      write(i);
  });
}

void KernelEmitter::emitPhase(Running *columnSums) {
  rowAnchor = nullptr;
  startReductions();
  SmallVector<size_t> written;
  for (size_t i = 0; i < targets.size(); ++i)
    if (!isRowTarget(i) && phaseOf(valueOf(i)) == phase)
      written.push_back(i);
  SmallVector<size_t> summed;
  for (auto [i, op] : llvm::enumerate(columnOps))
    if (phaseOf(op.getX()) == phase)
      summed.push_back(i);
  if (reductions.empty() && written.empty() && summed.empty())
    return;
  if (unrolled)
    readPoints(written, summed);
  Running running = forPoints(identities(), [&](Running &now) {
    accumulate(now);
    for (size_t i : summed)
      addColumn(i, columnSums);
    for (size_t i : written)
      evaluate(valueOf(i));
    guarded(both(rowInside, pointInside), [&] {
      for (size_t i : written)
        write(i);
    });
  });
  rowAnchor = nullptr;
  finishReductions(running);
}

/// Registers for what a thread reads of a row.
int64_t KernelEmitter::readRegisters() {
  int64_t bytes = 0;
  for (auto &[value, access] : leaves)
    if (levelOf(value) == fusion::Level::Lane)
      bytes += width * elementBytes(access.element);
  return share() * bytes / 4;
}

/// Reads what all points of a thread need in this phase before any of them
/// writes, so that all of it is under way at once; but not what caches hold
/// where the registers are for what is kept.
void KernelEmitter::readPoints(ArrayRef<size_t> written,
                               ArrayRef<size_t> summed) {
  llvm::SetVector<Value> needed;
  llvm::DenseSet<Value> seen;
  for (size_t i : written)
    collectReads(valueOf(i), needed, seen);
  for (size_t i : summed)
    collectReads(columnOps[i].getX(), needed, seen);
  for (nn::ReduceOp op : reductions)
    collectReads(op.getX(), needed, seen);
  if (keepsPoints)
    needed.remove_if([&](Value value) {
      auto leaf = leaves.find(value);
      return leaf == leaves.end() || isOfAllRows(leaf->second);
    });
  else
    for (Point &point : unrolledPoints)
      point.values.clear();
  forPoints({}, [&](Running &) {
    for (Value leaf : needed)
      evaluate(leaf);
  });
}

/// What is in memory at the points of a row, of all that `value` is made from.
void KernelEmitter::collectReads(Value value, llvm::SetVector<Value> &reads,
                                 llvm::DenseSet<Value> &seen) {
  if (levelOf(value) != fusion::Level::Lane || !seen.insert(value).second)
    return;
  if (stored.contains(value) && phaseOf(value) < phase) {
    reads.insert(value);
  } else if (auto leaf = plan.leaves.find(value); leaf != plan.leaves.end()) {
    if (leaf->second.kind == Leaf::Memory)
      reads.insert(value);
  } else if (Operation *op = value.getDefiningOp(); !isImmediate(value)) {
    for (Value operand : op->getOperands())
      collectReads(operand, reads, seen);
  }
}

void KernelEmitter::enterPoint(Value point) {
  pointNumber = point;
  SmallVector<int64_t> sizes(plan.walk);
  sizes.push_back(plan.lane / width);
  walkIndices = indicesOf(wide(b, point), sizes);
  laneIndex = times(walkIndices.pop_back_val(), width);
}

Running KernelEmitter::forPoints(Running running, Body body) {
  pointInside = nullptr;
  if (unrolled) {
    for (auto [i, point] : llvm::enumerate(unrolledPoints)) {
      pointIndex = i;
      pointInside = point.inside;
      walkIndices = point.walk;
      laneIndex = point.lane;
      pointNumber = point.number;
      std::swap(atPoint, point.values);
      body(running);
      std::swap(atPoint, point.values);
    }
    pointInside = nullptr;
    return running;
  }
  auto loop = scf::ForOp::create(b, within, word(b, points()),
                                 word(b, rowThreads), running);
  rowAnchor = loop;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    enterPoint(loop.getInductionVar());
    atPoint.clear();
    Running inner(loop.getRegionIterArgs());
    body(inner);
    if (!inner.empty()) {
      b.setInsertionPointToEnd(loop.getBody());
      scf::YieldOp::create(b, inner);
    }
    atPoint.clear();
  }
  Running sums(loop.getResults());
  return tail ? forTail(sums, body) : sums;
}

/// The first threads of the row have a lane each.
Running KernelEmitter::forTail(const Running &running, Body body) {
  Value has = below(b, within, word(b, tail));
  auto inside = scf::IfOp::create(b, ValueRange(running).getTypes(), has,
                                  !running.empty());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(inside.thenBlock());
  Running sums = running;
  inTail(add(wide(b, within), integer(points() * width)), [&] { body(sums); });
  if (running.empty())
    return running;
  b.setInsertionPointToEnd(inside.thenBlock());
  scf::YieldOp::create(b, sums);
  b.setInsertionPointToEnd(inside.elseBlock());
  scf::YieldOp::create(b, running);
  return inside.getResults();
}

FailureOr<KernelCode> cuda::emitKernel(ModuleOp module, StringRef name,
                                       const KernelPlan &plan,
                                       ArrayRef<Buffer> buffers, bool mayHold) {
  return KernelEmitter(module, name, plan, buffers, mayHold).run();
}
