//===- Differentiate.cpp - reverse mode over the whole graph --------------===//
#include "dialects/nn/Build.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

namespace pipec {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

/// Gives every op created while an op is differentiated that op's stage.
struct TagListener : public OpBuilder::Listener {
  Attribute stage, phase;
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    if (stage)
      op->setAttr(kOpStage, stage);
    op->setAttr(kOpPhase, phase);
  }
};

class Reverse {
public:
  Reverse(func::FuncOp main, ModuleOp module, int64_t microbatches,
          bool zeroGradients)
      : main(main), module(module), microbatches(microbatches),
        zeroGradients(zeroGradients) {}

  LogicalResult run() {
    active = activeValues(main);
    auto ret = cast<func::ReturnOp>(main.front().getTerminator());
    Value loss = ret.getOperand(0);
    if (!active.contains(loss))
      return nothingTrains();
    listener.phase = StringAttr::get(main.getContext(), "backward");
    NNBuilder b(main.getLoc(), main.getContext());
    b.setListener(&listener);
    b.setInsertionPoint(ret);
    SmallVector<Operation *> ops;
    for (Operation &op : main.front().without_terminator())
      ops.push_back(&op);
    seed(b, loss);
    numberUses(ops);
    bool complete = true;
    for (Operation *op : llvm::reverse(ops))
      complete = succeeded(visit(b, op)) && complete;
    if (!complete)
      return failure();
    if (!zeroGradients && main.front().getOps<pipe::AccumulateOp>().empty())
      return nothingTrains(); // steps and comparisons stopped every gradient
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(main.front())))
      if (isBackward(&op) && isOpTriviallyDead(&op))
        op.erase();
    return success();
  }

private:
  LogicalResult nothingTrains() {
    return main.emitError(
        "the loss depends on no trained weight; take the loss of another "
        "output "
        "with --logits, or run the model as it is with --forward-only");
  }

  void seed(NNBuilder &b, Value loss) {
    Operation *def = loss.getDefiningOp();
    listener.stage = def->getAttr(kOpStage);
    b.setLoc(def->getLoc());
    gradients[loss] = splatLike(b, loss, 1.0 / microbatches);
  }

  /// Uses are numbered in program order: the order in which runtime folds them.
  /// Copies for pieces of a sequence are one use: they share an accumulator.
  void numberUses(ArrayRef<Operation *> ops) {
    llvm::StringMap<int64_t> counts;
    llvm::DenseMap<Attribute, int64_t> shared;
    for (Operation *op : ops) {
      auto weight = dyn_cast<WeightOp>(op);
      if (!weight || !active.contains(weight.getY()))
        continue;
      Attribute use = op->getAttr(kOpUse);
      if (use && shared.contains(use)) {
        useNumber[op] = shared[use];
        continue;
      }
      useNumber[op] = counts[weight.getParameter()]++;
      if (use)
        shared[use] = useNumber[op];
    }
  }

  LogicalResult visit(NNBuilder &b, Operation *op) {
    SmallVector<Value> results;
    bool any = false;
    for (Value v : op->getResults()) {
      results.push_back(gradients.lookup(v));
      any = any || results.back();
    }
    if (!any)
      return success();
    listener.stage = op->getAttr(kOpStage);
    b.setLoc(op->getLoc());
    if (auto weight = dyn_cast<WeightOp>(op)) {
      pipe::AccumulateOp::create(b, results[0], weight.getParameterAttr(),
                                 b.getI64IntegerAttr(useNumber.lookup(op)));
      return success();
    }
    llvm::BitVector needed(op->getNumOperands());
    for (OpOperand &operand : op->getOpOperands())
      if (active.contains(operand.get()))
        needed.set(operand.getOperandNumber());
    if (needed.none())
      return success();
    auto differentiable = dyn_cast<Differentiable>(op);
    if (!differentiable)
      return op->emitError()
             << op->getName()
             << " has no gradient, but a trained weight needs it; keep the "
                "weights before it fixed with --freeze";
    SmallVector<Value> operandGrads(op->getNumOperands());
    differentiable.backward(b, results, needed, operandGrads);
    for (auto [v, g] : llvm::zip(op->getOperands(), operandGrads))
      if (g && active.contains(v))
        contribute(b, v, g);
    return success();
  }

  void contribute(NNBuilder &b, Value v, Value g) {
    Value &sum = gradients[v];
    sum = sum ? nn::add(b, sum, g) : g;
  }

  func::FuncOp main;
  ModuleOp module;
  int64_t microbatches;
  bool zeroGradients;
  TagListener listener;
  llvm::DenseSet<Value> active;
  llvm::DenseMap<Value, Value> gradients;
  llvm::DenseMap<Operation *, int64_t> useNumber;
};

struct DifferentiatePass
    : public pipec::impl::DifferentiateBase<DifferentiatePass> {
  using DifferentiateBase::DifferentiateBase;
  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main ||
        failed(
            Reverse(main, getOperation(), microbatches, zeroGradients).run()))
      signalPassFailure();
  }
};

} // namespace
