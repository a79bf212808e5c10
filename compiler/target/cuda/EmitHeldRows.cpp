//===- EmitHeldRows.cpp - long rows that stay in shared memory ------------===//
//
// A row that is too long for registers is read from memory once, all of it at a
// time, and then from shared memory in every phase. Two blocks fit beside each
// other, so that one computes while the other waits for its row:
//
//   block 0  fetch | max | sum | write |  fetch  | max | sum | write
//   block 1  .. | sum | write |  fetch  | max | sum | write | fetch ..
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/KernelEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;

/// Half of the 228 KiB of a multiprocessor (9.0), less what every block has for
/// the driver.
constexpr int64_t kMostHeld = 113 * 1024;
/// What is fetched at once, in bytes.
constexpr int64_t kPart = 16;

/// In how many phases a row of each is read.
llvm::MapVector<Value, int> KernelEmitter::countReads() {
  llvm::MapVector<Value, int> counts;
  for (phase = 0; phase < phaseCount; ++phase) {
    llvm::SetVector<Value> reads;
    llvm::DenseSet<Value> seen;
    startReductions();
    for (nn::ReduceOp op : reductions)
      collectReads(op.getX(), reads, seen);
    for (size_t i = 0; i < targets.size(); ++i)
      if (!isRowTarget(i) && phaseOf(valueOf(i)) == phase)
        collectReads(valueOf(i), reads, seen);
    for (Value value : reads)
      ++counts[value];
  }
  phase = 0;
  return counts;
}

/// Whether each row of a leaf begins at a part, and is dense.
bool KernelEmitter::mayFetch(Value value) const {
  const auto leaf = leaves.find(value);
  if (leaf == leaves.end())
    return false;
  const Access &access = leaf->second;
  const int64_t size = elementBytes(access.element);
  const KernelArgument &argument = arguments[access.argument];
  return access.strides.back() == 1 && kPart % size == 0 &&
         (buffers[argument.buffer].offset + argument.byteOffset) % kPart == 0 &&
         llvm::all_of(access.strides.drop_back(), [&](int64_t stride) {
           return stride * size % kPart == 0;
         });
}

void KernelEmitter::chooseHeldRows() {
  if (!mayHold || unrolled || blockRows > 1 || !plan.walk.empty())
    return;
  const auto sums = static_cast<int64_t>(plan.nest.rowReductions.size());
  int64_t bytes = llvm::alignTo(sums * slotBytes(), kPart);
  llvm::MapVector<Value, int64_t> places;
  for (auto [value, reads] : countReads()) {
    if (reads < 2 || !mayFetch(value))
      continue;
    places[value] = bytes;
    bytes +=
        llvm::alignTo(plan.lane * elementBytes(leaves[value].element), kPart);
  }
  if (places.empty() || bytes > kMostHeld)
    return;
  held = std::move(places);
  code.sharedBytes = bytes;
}

Value KernelEmitter::heldAt(Value value, Value lane) {
  const Access &access = leaves[value];
  Value row = sharedMemory(b, held[value]);
  return LLVM::GEPOp::create(b, row.getType(), memoryType(access.element), row,
                             ArrayRef<LLVM::GEPArg>{lane});
}

/// All threads of the block, at the row where it is.
void KernelEmitter::fetchHeldRows() {
  if (held.empty())
    return;
  for (auto &[value, place] : held) {
    const Access &access = leaves[value];
    const int64_t size = elementBytes(access.element), each = kPart / size,
                  parts = plan.lane / each, rest = plan.lane % each;
    {
      auto loop =
          scf::ForOp::create(b, within, word(b, parts), word(b, rowThreads));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value lane = times(wide(b, loop.getInductionVar()), each);
      copyAhead(b, heldAt(value, lane),
                advance(access.rowPointer, access.element, lane), kPart);
    }
    if (!rest)
      continue;
    Value has = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, within,
                                      word(b, rest));
    guarded(has, [&] {
      Value lane = add(wide(b, within), integer(parts * each));
      Type memory = memoryType(access.element);
      Value one = LLVM::LoadOp::create(
          b, memory, advance(access.rowPointer, access.element, lane), size);
      LLVM::StoreOp::create(b, one, heldAt(value, lane), size);
    });
  }
  waitForCopies(b);
  barrier(b);
}

Value KernelEmitter::readMemory(Value value, const Access &access) {
  if (!held.contains(value))
    return loadAt(access);
  Type memory = memoryType(access.element);
  return fromMemory(LLVM::LoadOp::create(b,
                                         width == 1 ? memory : laneType(memory),
                                         heldAt(value, laneIndex),
                                         width * elementBytes(access.element)),
                    access.element);
}
