//===- AssignStages.cpp - writes a partition into the IR ------------------===//
#include "passes/AssignStages.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

namespace pipec {
#define GEN_PASS_DEF_ASSIGNSTAGES
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;

LogicalResult pipec::assignStages(func::FuncOp main, ArrayRef<int64_t> cuts) {
  Builder b(main.getContext());
  SmallVector<Operation *> nodes = modelNodes(main);
  int64_t previous = 0;
  for (int64_t cut : cuts) {
    if (cut <= previous || cut >= static_cast<int64_t>(nodes.size()))
      return main.emitError("stage boundary ")
             << cut << " is not inside the model's chain of " << nodes.size()
             << " nodes after " << previous;
    previous = cut;
  }
  for (auto [i, op] : llvm::enumerate(nodes)) {
    int64_t stage =
        llvm::upper_bound(cuts, static_cast<int64_t>(i)) - cuts.begin();
    op->setAttr(kOpStage, b.getI64IntegerAttr(stage));
  }
  // Sources follow their readers, from the last source to the first. Readers on
  // different stages share a source only if it is no weight (nn-split-uses);
  // the split repeats those.
  for (Operation &op : llvm::reverse(main.front().without_terminator())) {
    if (op.hasAttr(kOpStage))
      continue;
    int64_t stage = -1;
    for (Operation *user : op.getUsers())
      if (int64_t s = stageOf(user); s >= 0)
        stage = stage < 0 ? s : std::min(stage, s);
    op.setAttr(kOpStage, b.getI64IntegerAttr(std::max<int64_t>(stage, 0)));
  }
  return success();
}

namespace {
struct AssignStagesPass
    : public pipec::impl::AssignStagesBase<AssignStagesPass> {
  using AssignStagesBase::AssignStagesBase;
  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main || failed(assignStages(
                     main, SmallVector<int64_t>(cuts.begin(), cuts.end()))))
      signalPassFailure();
  }
};
} // namespace
