//===- MarkOutputs.cpp - outputs become ops of the program ----------------===//
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

namespace pipec {
#define GEN_PASS_DEF_MARKOUTPUTS
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;

namespace {

struct MarkOutputsPass : public pipec::impl::MarkOutputsBase<MarkOutputsPass> {
  using MarkOutputsBase::MarkOutputsBase;

  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main)
      return signalPassFailure();
    auto ret = cast<func::ReturnOp>(main.front().getTerminator());
    for (unsigned i = 0; i < ret.getNumOperands(); ++i)
      mark(main, i, ret.getOperand(i));
    if (keepResults)
      return;
    while (main.getNumResults() > 0)
      if (failed(main.eraseResult(main.getNumResults() - 1)))
        return signalPassFailure();
    ret.getOperandsMutable().clear();
  }

  /// Right behind what makes the value, so that it never travels for this.
  void mark(func::FuncOp main, unsigned index, Value value) {
    OpBuilder b(&getContext());
    b.setInsertionPointAfterValue(value);
    auto name = main.getResultAttrOfType<StringAttr>(index, "nn.name");
    auto axis = main.getResultAttrOfType<IntegerAttr>(index, "nn.batch_axis");
    pipe::OutputOp::create(b, NameLoc::get(name), value, name,
                           axis ? axis : b.getI64IntegerAttr(-1));
  }
};

} // namespace
