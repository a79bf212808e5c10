//===- EarlyGradients.cpp - gradients that forward computes ---------------===//
#include "passes/EarlyGradients.h"

#include "dialects/pipe/Pipe.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

bool pipec::isCheap(Operation *op) {
  return op->hasTrait<Elementwise>() || op->hasTrait<View>();
}

namespace {

using Values = llvm::SetVector<Value>;

/// One stage's.
class Mover {
public:
  Mover(ArrayRef<Operation *> backward, Sources &sources)
      : backward(backward), sources(sources) {}

  /// The values to be kept; their ops are of the forward pass then.
  Values run() {
    findEarly();
    for (Value end : findEnds())
      tryMove(end);
    return ends;
  }

private:
  static bool isConstant(Operation *op) { return isa<ConstantOp>(op); }

  /// Whether the forward pass has it, or can make it.
  bool isThere(Value v, Operation *reader) {
    Operation *def = v.getDefiningOp();
    if (!def || isConstant(def) || early.contains(def))
      return true;
    return !isBackward(def) &&
           (sources.contains(def) || stageOf(def) == stageOf(reader));
  }

  /// Not what other stages read: that goes back to them.
  static bool isOwn(Operation *op) {
    return llvm::all_of(op->getUsers(), [&](Operation *user) {
      return stageOf(user) == stageOf(op);
    });
  }

  void findEarly() {
    for (Operation *op : backward)
      if (!isConstant(op) && (isCheap(op) || isa<ReduceOp>(op)) && isOwn(op) &&
          llvm::all_of(op->getOperands(),
                       [&](Value v) { return isThere(v, op); }))
        early.insert(op);
  }

  /// What products and the like read.
  Values findEnds() {
    Values found;
    for (Operation *op : backward)
      if (!isCheap(op) && !isa<ReduceOp, pipe::AccumulateOp>(op))
        for (Value v : op->getOperands())
          if (Operation *def = v.getDefiningOp(); def && early.contains(def))
            found.insert(v);
    return found;
  }

  void tryMove(Value end) {
    llvm::SetVector<Operation *> cone;
    collectCone(end.getDefiningOp(), cone);
    if (llvm::all_of(cone, [](Operation *op) { return op->hasTrait<View>(); }))
      return;
    const Values before = kept();
    moved.insert(cone.begin(), cone.end());
    ends.insert(end);
    Values freed = before;
    freed.set_subtract(kept());
    if (byteSize(end.getType()) <= bytes(freed)) {
      for (Operation *op : cone)
        makeEarly(op);
      return;
    }
    ends.remove(end);
    for (Operation *op : cone)
      moved.erase(op);
  }

  void collectCone(Operation *op, llvm::SetVector<Operation *> &cone) {
    if (moved.contains(op) || !cone.insert(op))
      return;
    for (Value v : op->getOperands())
      if (Operation *def = v.getDefiningOp(); def && early.contains(def))
        collectCone(def, cone);
  }

  /// What the backward pass reads, as far back as no cheap op makes it, beside
  /// the ends.
  Values kept() {
    Values found;
    llvm::DenseSet<Operation *> seen;
    for (Operation *op : backward)
      if (!moved.contains(op))
        collectKept(op, found, seen);
    return found;
  }
  void collectKept(Operation *op, Values &found,
                   llvm::DenseSet<Operation *> &seen) {
    for (Value v : op->getOperands()) {
      Operation *def = v.getDefiningOp();
      if (!def || sources.contains(def) || stageOf(def) != stageOf(op) ||
          ends.contains(v) || (isBackward(def) && !moved.contains(def)))
        continue;
      if (!isCheap(def) && !isBackward(def))
        found.insert(v);
      else if (seen.insert(def).second)
        collectKept(def, found, seen);
    }
  }

  static int64_t bytes(const Values &values) {
    int64_t sum = 0;
    for (Value v : values)
      sum += byteSize(v.getType());
    return sum;
  }

  ArrayRef<Operation *> backward;
  Sources &sources;
  llvm::DenseSet<Operation *> early; ///< need no gradient from elsewhere
  llvm::DenseSet<Operation *> moved; ///< of these
  Values ends;
};

} // namespace

Values
pipec::moveEarlyGradients(func::FuncOp main, Sources &sources,
                          llvm::function_ref<bool(int64_t stage)> mayMove) {
  llvm::MapVector<int64_t, SmallVector<Operation *>> backward;
  for (Operation &op : main.front())
    if (isBackward(&op))
      backward[stageOf(&op)].push_back(&op);
  Values kept;
  for (auto &[stage, ops] : backward)
    if (mayMove(stage))
      kept.set_union(Mover(ops, sources).run());
  return kept;
}
