//===- EmitKernel.cpp - a kernel plan as a function -----------------------===//
//
// Loops are scf, values are scalars or vectors of up to 64 lanes, memory is
// reached through pointers.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/EmitKernel.h"
#include "compiler/target/cpu/KernelEmitter.h"
#include "compiler/target/fusion/EmitElementwise.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;
using namespace pipec::fusion;
using nn::tensorType;

KernelEmitter::KernelEmitter(ModuleOp module, StringRef name,
                             const KernelPlan &plan, const Machine &machine)
    : PointEmitter(module.getContext(), plan, machine) {
  b.setInsertionPointToEnd(module.getBody());
  Type i64 = b.getI64Type();
  code.function = func::FuncOp::create(
      b, name, b.getFunctionType({i64, i64, pointerType}, {}));
  code.function.setPrivate();
  width = plan.lane <= 1
              ? 1
              : std::min<int64_t>(kLanes, llvm::PowerOf2Ceil(plan.lane));
}

FailureOr<KernelCode> KernelEmitter::run() {
  Block *body = code.function.addEntryBlock();
  b.setInsertionPointToStart(body);
  collectAccesses();
  loadPointers(body->getArgument(2));
  countPhases();
  Value lo = body->getArgument(0), hi = body->getArgument(1);
  if (plan.isFlat())
    emitFlat(lo, hi);
  else if (!columnOps.empty())
    emitChunks(lo, hi);
  else
    emitRows(lo, hi);
  b.setInsertionPointToEnd(body);
  func::ReturnOp::create(b);
  if (unsupported)
    return unsupported->emitError("no CPU code for ")
           << unsupported->getName() << " on this element type";
  setRange();
  code.arguments = arguments;
  return code;
}

//===----------------------------------------------------------------------===//
// Set-up
//===----------------------------------------------------------------------===//

void KernelEmitter::loadPointers(Value array) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    Value at =
        LLVM::GEPOp::create(b, pointerType, pointerType, array,
                            ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    pointers.push_back(LLVM::LoadOp::create(b, pointerType, at));
  }
}

void KernelEmitter::setRange() {
  // Enough elements that handing them to another thread pays.
  constexpr int64_t kLeast = 16384;
  int64_t row = std::max<int64_t>(columns(), 1);
  if (plan.isFlat()) {
    code.count = plan.lane;
    code.grain = kLeast;
  } else if (!columnOps.empty()) {
    code.count = outerCount() * plan.chunks;
    code.grain = llvm::divideCeil(kLeast, row * kChunkRows);
  } else {
    code.count = plan.rowCount();
    code.grain = llvm::divideCeil(kLeast, row);
  }
}

//===----------------------------------------------------------------------===//
// Flat kernels: one loop over elements
//===----------------------------------------------------------------------===//

void KernelEmitter::emitFlat(Value lo, Value hi) {
  enterRow({});
  if (plan.lane == 1) {
    laneIndex = integer(0);
    emitFlatPoint();
    return;
  }
  // Only the last range has a tail: every other is a multiple of the grain.
  Value end = hi;
  bool hasTail = plan.lane % width != 0;
  if (hasTail) {
    Value count = arith::SubIOp::create(b, hi, lo);
    Value rest = arith::AndIOp::create(b, count, integer(width - 1));
    end = arith::SubIOp::create(b, hi, rest);
  }
  auto loop = scf::ForOp::create(b, lo, end, integer(width));
  entryAnchor = loop;
  rowAnchor = loop;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    laneIndex = loop.getInductionVar();
    emitFlatPoint();
  }
  if (hasTail)
    emitFlatTail(end, hi);
}

void KernelEmitter::emitFlatTail(Value end, Value hi) {
  Value some = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, end, hi);
  auto tail = scf::IfOp::create(b, some, /*withElse=*/false);
  b.setInsertionPointToStart(tail.thenBlock());
  laneIndex = end;
  SmallVector<int8_t> lanes;
  for (int64_t i = 0; i < width; ++i)
    lanes.push_back(i);
  auto type = VectorType::get({width}, b.getI8Type());
  Value iota = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, ArrayRef<int8_t>(lanes)));
  Value rest = arith::TruncIOp::create(b, b.getI8Type(),
                                       arith::SubIOp::create(b, hi, end));
  mask =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, iota, spread(rest));
  emitFlatPoint();
  mask = nullptr;
}

void KernelEmitter::emitFlatPoint() {
  atPoint.clear();
  for (size_t i = 0; i < targets.size(); ++i)
    write(i);
}

//===----------------------------------------------------------------------===//
// Rows, and chunks of rows
//===----------------------------------------------------------------------===//

void KernelEmitter::emitRows(Value lo, Value hi) {
  auto loop = scf::ForOp::create(b, lo, hi, integer(1));
  entryAnchor = loop;
  b.setInsertionPointToStart(loop.getBody());
  enterRow(loop.getInductionVar());
  emitRow();
}

/// Each chunk has its own partial sums of the columns.
void KernelEmitter::emitChunks(Value lo, Value hi) {
  auto chunk = scf::ForOp::create(b, lo, hi, integer(1));
  entryAnchor = chunk;
  b.setInsertionPointToStart(chunk.getBody());
  Value number = chunk.getInductionVar();
  SmallVector<int64_t> dense(rowLoops, 0), sizes(plan.walk);
  sizes.push_back(plan.lane);
  dense.append(denseStrides(sizes));
  if (plan.lane == 1)
    dense.back() = 0;
  for (auto [op, access] : llvm::zip_equal(columnOps, partials)) {
    access.rowPointer = advance(pointers[access.argument], access.element,
                                times(number, columns()));
    access.strides = dense;
    clearPartials(op.getKind(), access);
  }
  int64_t rows = product(plan.rows);
  Value outer = arith::DivUIOp::create(b, number, integer(plan.chunks));
  Value within = arith::RemUIOp::create(b, number, integer(plan.chunks));
  Value first = times(within, kChunkRows);
  Value last =
      arith::MinSIOp::create(b, add(first, integer(kChunkRows)), integer(rows));
  Value base = times(outer, rows);
  auto row =
      scf::ForOp::create(b, add(base, first), add(base, last), integer(1));
  b.setInsertionPointToStart(row.getBody());
  enterRow(row.getInductionVar());
  emitRow();
}

void KernelEmitter::clearPartials(StringRef kind, Access &access) {
  Value identity = emitIdentity(b, kind, access.element);
  auto loop = scf::ForOp::create(b, integer(0), integer(columns()), integer(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value at = advance(access.rowPointer, access.element, loop.getInductionVar());
  LLVM::StoreOp::create(b, toMemory(identity), at,
                        elementBytes(access.element));
}

/// Sets the row's indices and pointers from its number.
void KernelEmitter::enterRow(Value row) {
  SmallVector<int64_t> sizes(plan.outer);
  sizes.append(plan.rows);
  rowIndices = indicesOf(row, sizes);
  placeRow();
}

void KernelEmitter::emitRow() {
  atRow.clear();
  for (phase = 0; phase < phaseCount; ++phase)
    emitPhase();
  rowAnchor = nullptr;
  for (size_t i = 0; i < targets.size(); ++i)
    if (isRowTarget(i))
      write(i);
}

void KernelEmitter::emitPhase() {
  rowAnchor = nullptr;
  startReductions();
  bool walks = !reductions.empty();
  for (nn::ReduceOp op : columnOps)
    walks |= phaseOf(op.getX()) == phase;
  for (size_t i = 0; i < targets.size(); ++i)
    walks |= !isRowTarget(i) && phaseOf(valueOf(i)) == phase;
  if (!walks)
    return;
  Running running = emitWalk(0, identities());
  rowAnchor = nullptr;
  finishReductions(running);
}

Running KernelEmitter::emitWalk(size_t depth, Running running) {
  if (depth == 0)
    walkIndices.clear();
  if (depth == plan.walk.size())
    return emitLanes(std::move(running));
  auto loop = scf::ForOp::create(b, integer(0), integer(plan.walk[depth]),
                                 integer(1), running);
  if (!rowAnchor)
    rowAnchor = loop;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  walkIndices.push_back(loop.getInductionVar());
  Running inner(loop.getRegionIterArgs());
  inner = emitWalk(depth + 1, std::move(inner));
  walkIndices.pop_back();
  yield(loop, inner);
  return loop.getResults();
}

/// scf.for without iteration arguments already has its yield.
void KernelEmitter::yield(scf::ForOp loop, const Running &values) {
  if (values.empty())
    return;
  b.setInsertionPointToEnd(loop.getBody());
  scf::YieldOp::create(b, values);
}

Running KernelEmitter::emitLanes(Running running) {
  if (plan.lane == 0)
    return running;
  mask = nullptr;
  int64_t full = plan.lane / width * width;
  if (full > width) {
    auto loop = scf::ForOp::create(b, integer(0), integer(full), integer(width),
                                   running);
    if (!rowAnchor)
      rowAnchor = loop;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    laneIndex = loop.getInductionVar();
    Running inner(loop.getRegionIterArgs());
    emitPoint(inner);
    yield(loop, inner);
    running.assign(loop.getResults().begin(), loop.getResults().end());
  } else if (full == width) {
    laneIndex = integer(0);
    emitPoint(running);
  }
  if (int64_t rest = plan.lane - full) {
    laneIndex = integer(full);
    SmallVector<bool> lanes(width, false);
    std::fill_n(lanes.begin(), rest, true);
    mask = arith::ConstantOp::create(
        b, DenseElementsAttr::get(cast<ShapedType>(laneType(b.getI1Type())),
                                  lanes));
    emitPoint(running);
    mask = nullptr;
  }
  return running;
}

/// Everything of a phase at one point (of up to 64 lanes).
void KernelEmitter::emitPoint(Running &running) {
  atPoint.clear();
  accumulate(running);
  for (auto [op, access] : llvm::zip_equal(columnOps, partials))
    if (phaseOf(op.getX()) == phase) {
      Value x = widened(b, machine, spread(evaluate(op.getX())));
      storeAt(access, emitCombine(b, machine, op.getKind(), loadAt(access), x));
    }
  for (size_t i = 0; i < targets.size(); ++i)
    if (!isRowTarget(i) && phaseOf(valueOf(i)) == phase)
      write(i);
}

FailureOr<KernelCode> cpu::emitKernel(ModuleOp module, StringRef name,
                                      const KernelPlan &plan,
                                      const Machine &machine) {
  return KernelEmitter(module, name, plan, machine).run();
}
