//===- Precision.cpp - contractions in a narrow type ----------------------===//
#include "dialects/nn/Build.h"
#include "dialects/nn/Rough.h"
#include "passes/Graph.h"
#include "passes/Passes.h"
#include "passes/SigmoidForm.h"

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
  Narrowing(func::FuncOp main, Type element, bool biases)
      : main(main), element(element), biases(biases), sources(main) {}

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
    if (biases)
      for (auto sum : main.front().getOps<AddOp>())
        for (unsigned product : {0, 1})
          if (roundOnce(sum, product))
            break;
    markRough();
    useSigmoidForm(main);
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

  bool isRounding(Operation *op) {
    auto cast = dyn_cast<CastOp>(op);
    return cast && tensorType(cast.getY()).getElementType() == element;
  }

  /// Back through views that have no other reader; null when there is one.
  static Value behindViews(Value value, OpOperand *&first) {
    while (value.hasOneUse()) {
      Operation *def = value.getDefiningOp();
      if (!def || !def->hasTrait<View>())
        return value;
      first = &def->getOpOperand(0);
      value = first->get();
    }
    return value.getDefiningOp<WeightOp>() ? value : Value();
  }

  /// A product plus a trained vector, of which only rounded numbers are read:
  /// the product stays in f32, the vector is rounded.
  bool roundOnce(AddOp sum, unsigned product) {
    OpOperand *from = &sum->getOpOperand(product);
    OpOperand *bias = &sum->getOpOperand(1 - product);
    Value widened = behindViews(from->get(), from);
    Value vector = behindViews(bias->get(), bias);
    auto cast = widened ? widened.getDefiningOp<CastOp>() : CastOp();
    auto weight = vector ? vector.getDefiningOp<WeightOp>() : WeightOp();
    auto matmul = cast ? cast.getX().getDefiningOp<MatmulOp>() : MatmulOp();
    if (!matmul || !matmul->hasOneUse() || matmul.getWide() || !weight ||
        tensorType(matmul.getY()).getElementType() != element ||
        !tensorType(weight.getY()).getElementType().isF32() ||
        tensorType(weight.getY()).getRank() != 1 ||
        !llvm::all_of(sum->getUsers(),
                      [&](Operation *op) { return isRounding(op); }))
      return false;
    NNBuilder b(weight.getLoc(), main.getContext());
    b.setInsertionPointAfter(weight);
    bias->set(nn::cast(b, nn::cast(b, weight.getY(), element), b.getF32Type()));
    matmul.setWide(true);
    matmul.getY().setType(cast.getY().getType());
    cast.replaceAllUsesWith(matmul.getY());
    cast.erase();
    return true;
  }

  /// An exp, tanh or sigmoid of a sum, difference or product that a rounded
  /// number is part of.
  void markRough() {
    llvm::DenseSet<Value> rough;
    for (Operation &op : main.front()) {
      bool isPart = llvm::any_of(op.getOperands(), [&](Value v) {
        return rough.contains(v) || tensorType(v).getElementType() == element;
      });
      if (!isPart)
        continue;
      if (isa<ExpOp, TanhOp, SigmoidOp>(op))
        op.setAttr(kRoughAttr, UnitAttr::get(op.getContext()));
      else if (isa<CastOp, AddOp, SubOp, MulOp, ReshapeOp>(op))
        rough.insert(op.getResult(0));
    }
  }

  func::FuncOp main;
  Type element;
  bool biases;
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
      Narrowing(main, BFloat16Type::get(&getContext()), biases).run();
    else if (type != "fp32") {
      main.emitError("unknown precision '") << type << "'";
      signalPassFailure();
    }
  }
};

} // namespace
