//===- RoundWeights.cpp - weights that are kept rounded, too --------------===//
#include "passes/RoundWeights.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/Passes.h"

namespace pipec {
#define GEN_PASS_DEF_ROUNDWEIGHTS
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

WeightOp pipec::roundedWeight(CastOp cast) {
  const Type from = tensorType(cast.getX()).getElementType(),
             to = tensorType(cast.getY()).getElementType();
  if (!from.isF32() || !to.isBF16())
    return {};
  Value source = cast.getX();
  while (Operation *def = source.getDefiningOp()) {
    if (!def->hasTrait<View>())
      break;
    source = def->getOperand(0);
  }
  auto weight = source.getDefiningOp<WeightOp>();
  // Others cannot read strides: they would copy what a view shows.
  const bool isMultiplied =
      llvm::all_of(cast->getUsers(), llvm::IsaPred<MatmulOp, AttentionOp>);
  if (!weight || tensorType(weight.getY()).getRank() < 2 ||
      (source != cast.getX() && !isMultiplied))
    return {};
  auto parameter = SymbolTable::lookupNearestSymbolFrom<ParameterOp>(
      weight, weight.getParameterAttr());
  return parameter && parameter.isTrained() ? weight : WeightOp();
}

namespace {

/// `value`, which a rounded weight leads to through views, of that type.
Value rounded(Value value, Type element) {
  Operation *def = value.getDefiningOp();
  OpBuilder b(def);
  Operation *copy = b.clone(*def);
  if (!isa<WeightOp>(def))
    copy->setOperand(0, rounded(def->getOperand(0), element));
  Value result = copy->getResult(0);
  result.setType(tensorType(result).clone(element));
  return result;
}

struct RoundWeightsPass
    : public pipec::impl::RoundWeightsBase<RoundWeightsPass> {
  void runOnOperation() override {
    getOperation().walk([&](func::FuncOp task) {
      SmallVector<CastOp> casts(task.getOps<CastOp>());
      for (CastOp cast : casts)
        if (roundedWeight(cast))
          cast.replaceAllUsesWith(
              rounded(cast.getX(), tensorType(cast.getY()).getElementType()));
      for (Operation &op :
           llvm::make_early_inc_range(llvm::reverse(task.front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    });
  }
};

} // namespace
