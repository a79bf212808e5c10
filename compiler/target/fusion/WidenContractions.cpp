//===- WidenContractions.cpp - narrow contractions in f32 -----------------===//
#include "compiler/target/fusion/WidenContractions.h"
#include "dialects/nn/Build.h"

using namespace mlir;
using namespace pipec;

/// The result in f32, a cast behind it.
static void widenResult(Operation *op) {
  nn::NNBuilder b(op->getLoc(), op);
  Value result = op->getResult(0);
  Type element = nn::tensorType(result).getElementType();
  if (element.isF32())
    return;
  result.setType(nn::tensorType(result).clone(b.getF32Type()));
  b.setInsertionPointAfter(op);
  Value rounded = nn::cast(b, result, element);
  result.replaceAllUsesExcept(rounded, rounded.getDefiningOp());
}

static void widen(Operation *op) {
  nn::NNBuilder b(op->getLoc(), op);
  for (OpOperand &operand : op->getOpOperands())
    operand.set(nn::cast(b, operand.get(), b.getF32Type()));
  if (auto matmul = dyn_cast<nn::MatmulOp>(op))
    matmul.setWide(false);
  widenResult(op);
}

/// A convolution of bf16 that gives bf16, and is added to nothing.
static bool isRounded(Operation *op) {
  auto isBf16 = [](Value value) {
    return nn::tensorType(value).getElementType().isBF16();
  };
  return isa<nn::ConvOp, nn::ConvGradInputOp>(op) &&
         llvm::all_of(op->getOperands(), isBf16) && isBf16(op->getResult(0));
}

void fusion::widenContractions(func::FuncOp func, Bf16Products products) {
  for (Operation &op : llvm::make_early_inc_range(func.getBody().front())) {
    if (!isa<nn::MatmulOp, nn::ConvOp, nn::ConvGradInputOp,
             nn::ConvGradWeightOp>(op) ||
        !nn::isNarrow(op.getOperand(0)))
      continue;
    if (products == Bf16Products::Rounded && isRounded(&op))
      continue;
    auto matmul = dyn_cast<nn::MatmulOp>(op);
    if (!matmul || !nn::tensorType(matmul.getA()).getElementType().isBF16()) {
      widen(&op);
    } else if (products == Bf16Products::Sums && !matmul.getWide()) {
      matmul.setWide(true);
      widenResult(matmul);
    }
  }
}
