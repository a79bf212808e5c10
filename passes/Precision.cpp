//===- Precision.cpp - contractions in a narrow type ----------------------===//
#include "dialects/nn/Build.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

namespace pipec {
#define GEN_PASS_DEF_PRECISION
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

class Narrowing {
public:
  Narrowing(func::FuncOp main, Type element)
      : main(main), element(element), sources(main) {}

  void run() {
    findTensorsOfTheModel();
    SmallVector<Operation *> contractions;
    for (Operation &op : main.front())
      if (isa<MatmulOp, ConvOp, ConvGradInputOp, AttentionOp>(op) &&
          isNarrowed(&op))
        contractions.push_back(&op);
    for (Operation *op : contractions)
      rewrite(op);
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(main.front())))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

private:
  /// What is made from weights that train or from the floating-point data that
  /// the model is given. The rest is numbers about the model (positions,
  /// angles, masks), which 8 bits cannot hold.
  void findTensorsOfTheModel() {
    SymbolTable parameters(main->getParentOfType<ModuleOp>());
    for (Value argument : main.getArguments())
      if (isFloat(argument))
        tensors.insert(argument);
    for (Operation &op : main.front()) {
      bool on = llvm::any_of(op.getOperands(),
                             [&](Value v) { return tensors.contains(v); });
      if (auto weight = dyn_cast<WeightOp>(op))
        on = parameters.lookup<ParameterOp>(weight.getParameter()).isTrained();
      for (Value v : op.getResults())
        if (on && isFloat(v))
          tensors.insert(v);
    }
  }

  bool isNarrowed(Operation *op) {
    Value result = op->getResult(0);
    return tensorType(result).getElementType().isF32() &&
           tensors.contains(result);
  }

  /// What attention adds to its scores stays f32.
  static bool isBias(OpOperand &operand) {
    return isa<AttentionOp>(operand.getOwner()) &&
           operand.getOperandNumber() == 3;
  }

  void rewrite(Operation *op) {
    SmallVector<Value> operands;
    for (OpOperand &operand : op->getOpOperands())
      operands.push_back(isBias(operand) ? operand.get()
                                         : narrowed(operand.get(), op));
    NNBuilder b(op->getLoc(), op);
    Operation *copy = b.clone(*op);
    copy->setOperands(operands);
    Value result = copy->getResult(0);
    result.setType(tensorType(result).clone(element));
    op->getResult(0).replaceAllUsesWith(nn::cast(b, result, b.getF32Type()));
    for (unsigned i = 1; i < op->getNumResults(); ++i)
      op->getResult(i).replaceAllUsesWith(copy->getResult(i));
    op->erase();
  }

  /// `value` rounded, for `reader`. Where views lead from an activation to its
  /// reader, what they show is rounded and kept, once for all readers; the
  /// cast of a weight stands at the end, where its gradient is still f32.
  Value narrowed(Value value, Operation *reader) {
    Operation *def = value.getDefiningOp();
    if (def && sources.contains(def)) {
      NNBuilder b(reader->getLoc(), reader);
      return nn::cast(b, value, element);
    }
    Value &known = narrow[value];
    if (known)
      return known;
    if (auto cast = value.getDefiningOp<CastOp>())
      if (tensorType(cast.getX()).getElementType() == element)
        return known = cast.getX();
    NNBuilder b(def ? def->getLoc() : reader->getLoc(), main.getContext());
    if (def)
      b.setInsertionPointAfter(def);
    else
      b.setInsertionPointToStart(&main.front());
    if (!def || !def->hasTrait<View>())
      return known = nn::cast(b, value, element);
    Value source = narrowed(def->getOperand(0), reader);
    Operation *view = b.clone(*def);
    view->setOperand(0, source);
    Value result = view->getResult(0);
    result.setType(tensorType(result).clone(element));
    return narrow[value] = result;
  }

  func::FuncOp main;
  Type element;
  Sources sources;
  llvm::DenseSet<Value> tensors;
  llvm::DenseMap<Value, Value> narrow;
};

struct PrecisionPass : public pipec::impl::PrecisionBase<PrecisionPass> {
  using PrecisionBase::PrecisionBase;
  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main)
      return signalPassFailure();
    if (type == "bf16")
      Narrowing(main, BFloat16Type::get(&getContext())).run();
    else if (type != "fp32") {
      main.emitError("unknown precision '") << type << "'";
      signalPassFailure();
    }
  }
};

} // namespace
