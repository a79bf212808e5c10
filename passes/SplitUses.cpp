//===- SplitUses.cpp - one nn.weight op for every reader ------------------===//
#include "passes/Graph.h"
#include "passes/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

namespace pipec {
#define GEN_PASS_DEF_SPLITUSES
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;

namespace {

struct SplitUsesPass : public pipec::impl::SplitUsesBase<SplitUsesPass> {
  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main)
      return signalPassFailure();
    // Last to first: a chain of sources is split at its end, and the clones of
    // its end then split what they read.
    SmallVector<Operation *> ops;
    for (Operation &op : main.front().without_terminator())
      ops.push_back(&op);
    Sources sources(main);
    for (Operation *op : llvm::reverse(ops))
      if (sources.contains(op))
        split(op, sources);
  }

  /// The model operator that a reader belongs to. A chain of sources belongs to
  /// the one that reads its end: copies of a chain have equal locations, and
  /// were made for different operators.
  static Location modelOperator(Operation *reader, Sources &sources) {
    while (sources.contains(reader) && !reader->use_empty())
      reader = *reader->user_begin();
    return reader->getLoc();
  }

  /// One copy of `op` next to each group of readers of the same operator.
  void split(Operation *op, Sources &sources) {
    SmallVector<OpOperand *> uses;
    for (OpOperand &operand : op->getUses())
      uses.push_back(&operand);
    llvm::sort(uses, [](OpOperand *x, OpOperand *y) {
      if (x->getOwner() == y->getOwner())
        return x->getOperandNumber() < y->getOperandNumber();
      return x->getOwner()->isBeforeInBlock(y->getOwner());
    });
    llvm::MapVector<Location, SmallVector<OpOperand *>> groups;
    for (OpOperand *operand : uses)
      groups[modelOperator(operand->getOwner(), sources)].push_back(operand);
    bool first = true;
    for (auto &[loc, operands] : groups) {
      Operation *earliest = operands.front()->getOwner();
      if (first) {
        op->moveBefore(earliest);
        first = false;
        continue;
      }
      OpBuilder b(earliest);
      Operation *copy = b.clone(*op);
      for (OpOperand *operand : operands)
        operand->set(
            copy->getResult(cast<OpResult>(operand->get()).getResultNumber()));
    }
  }
};

} // namespace
