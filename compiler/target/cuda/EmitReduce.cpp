//===- EmitReduce.cpp - reductions over a row by its threads --------------===//
//
// A thread accumulates its points in order, then halves of its lanes, then of
// the threads of a warp by shuffles, then of the warps through shared memory.
// The order depends on the shape alone.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/KernelEmitter.h"
#include "compiler/target/fusion/EmitElementwise.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;
using nn::tensorType;

/// Partial sums that a thread reads at once: a few warps have to wait for all
/// of them.
constexpr int64_t kPartialLoads = 8;
/// Bytes of shared memory for one sum of a warp.
constexpr int64_t kSlot = 8;

int64_t KernelEmitter::slotBytes() const { return rowThreads / kWarp * kSlot; }

void KernelEmitter::startReductions() {
  reductions.clear();
  for (nn::ReduceOp op : plan.nest.rowReductions)
    if (phaseOf(op.getX()) == phase)
      reductions.push_back(op);
}

Running KernelEmitter::identities() {
  Running running;
  for (nn::ReduceOp op : reductions) {
    Type element = accumulatorType(tensorType(op.getX()).getElementType());
    running.push_back(emitIdentity(b, op.getKind(), laneType(element)));
  }
  return running;
}

void KernelEmitter::accumulate(Running &running) {
  for (auto [op, sum] : llvm::zip_equal(reductions, running)) {
    Value x = widened(b, machine, spread(evaluate(op.getX())));
    Value combined;
    if (isa<VectorType>(sum.getType()) && width == 1) { // in the tail
      Value first = emitCombine(b, machine, op.getKind(),
                                vector::ExtractOp::create(b, sum, 0), x);
      combined = vector::InsertOp::create(b, first, sum, 0);
    } else {
      combined = emitCombine(b, machine, op.getKind(), sum, x);
    }
    sum = pointInside ? arith::SelectOp::create(b, pointInside, combined, sum)
                      : combined;
  }
}

Value KernelEmitter::foldLanes(StringRef kind, Value lanes) {
  auto type = dyn_cast<VectorType>(lanes.getType());
  if (!type)
    return lanes;
  SmallVector<Value> parts;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    parts.push_back(vector::ExtractOp::create(b, lanes, i));
  for (size_t half = parts.size() / 2; half; half /= 2)
    for (size_t i = 0; i < half; ++i)
      parts[i] = emitCombine(b, machine, kind, parts[i], parts[i + half]);
  return parts.front();
}

/// Over `threads` neighbours of a warp; all of them have the result.
Value KernelEmitter::foldThreads(StringRef kind, Value value, int64_t threads) {
  for (int64_t bits = threads / 2; bits; bits /= 2)
    value = emitCombine(b, machine, kind, value, shuffleXor(b, value, bits));
  return value;
}

void KernelEmitter::finishReductions(const Running &running) {
  SmallVector<Value> sums;
  for (auto [op, lanes] : llvm::zip_equal(reductions, running))
    sums.push_back(foldThreads(op.getKind(), foldLanes(op.getKind(), lanes),
                               std::min(rowThreads, kWarp)));
  if (rowThreads > kWarp && !sums.empty())
    foldWarps(sums);
  for (auto [op, sum] : llvm::zip_equal(reductions, sums))
    atRow[op.getY()] =
        narrowed(b, machine, sum, tensorType(op.getY()).getElementType());
}

/// Each warp leaves its sums in shared memory; then every warp adds up all of
/// them, in the same order.
void KernelEmitter::foldWarps(MutableArrayRef<Value> sums) {
  int64_t warps = rowThreads / kWarp;
  auto word = [&](int64_t n) -> Value {
    return arith::ConstantIntOp::create(b, n, 32);
  };
  auto slot = [&](int64_t reduction, Value warp) -> Value {
    Value base = sharedMemory(b, (firstSlot + reduction) * slotBytes());
    return LLVM::GEPOp::create(b, base.getType(), b.getI64Type(), base,
                               ArrayRef<LLVM::GEPArg>{warp});
  };
  auto memory = [&](Value sum) { return memoryType(sum.getType()); };
  Value warp = arith::ShRUIOp::create(b, within, word(5));
  Value lane = arith::AndIOp::create(b, within, word(kWarp - 1));
  Value first =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, lane, word(0));
  guarded(first, [&] {
    for (auto [i, sum] : llvm::enumerate(sums))
      LLVM::StoreOp::create(b, toMemory(sum), slot(i, warp));
  });
  barrier(b);
  Value mine = arith::AndIOp::create(b, lane, word(warps - 1));
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Type element = sum.getType();
    Value part = LLVM::LoadOp::create(b, memory(sum), slot(i, mine));
    sum =
        foldThreads(reductions[i].getKind(), fromMemory(part, element), warps);
  }
  firstSlot += sums.size();
  code.sharedBytes = std::max(code.sharedBytes, firstSlot * slotBytes());
  // A group has so few operations (Fuse.cpp) that all of them fit.
  assert(!held.empty() || code.sharedBytes <= kSharedLimit);
}

/// Each thread adds every n-th partial sum; their sums meet in shared memory. A
/// kernel has one such sum (Place.cpp gives each a kernel of its own), of 8 KiB
/// at most.
Value KernelEmitter::sumPartials(nn::ReduceOp op, const Leaf &leaf,
                                 const Access &access) {
  if (partialThreads == 1)
    return narrowed(b, machine,
                    addPartials(op, leaf, access, integer(0), 1, kPartialLoads),
                    tensorType(op.getY()).getElementType());
  Value first = arith::ExtUIOp::create(b, b.getI64Type(), partialThread);
  Value mine =
      addPartials(op, leaf, access, first, partialThreads, kPartialLoads);
  Type element = mine.getType();
  Value stored = toMemory(mine);
  int64_t bytes = elementBytes(getElementTypeOrSelf(stored.getType()));
  if (auto vector = dyn_cast<VectorType>(stored.getType()))
    bytes *= vector.getNumElements();
  Value base = sharedMemory(b, code.sharedBytes);
  code.sharedBytes += partialThreads * partialPoints * bytes;
  assert(code.sharedBytes <= kSharedLimit);
  auto slot = [&](Value thread) -> Value {
    Value row = arith::MulIOp::create(
        b, thread, arith::ConstantIntOp::create(b, partialPoints * bytes, 32));
    Value at = arith::AddIOp::create(
        b, row,
        arith::MulIOp::create(b, within,
                              arith::ConstantIntOp::create(b, bytes, 32)));
    return LLVM::GEPOp::create(b, base.getType(), b.getI8Type(), base,
                               ArrayRef<LLVM::GEPArg>{at});
  };
  LLVM::StoreOp::create(b, stored, slot(partialThread), bytes);
  barrier(b);
  Value sum;
  for (int64_t i = 0; i < partialThreads; ++i) {
    Value part =
        fromMemory(LLVM::LoadOp::create(
                       b, stored.getType(),
                       slot(arith::ConstantIntOp::create(b, i, 32)), bytes),
                   getElementTypeOrSelf(element));
    sum = sum ? emitCombine(b, machine, op.getKind(), sum, part) : part;
  }
  return narrowed(b, machine, sum, tensorType(op.getY()).getElementType());
}
