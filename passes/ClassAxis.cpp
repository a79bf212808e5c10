//===- ClassAxis.cpp - where logits have their classes --------------------===//
#include "passes/ClassAxis.h"

#include "dialects/nn/NN.h"

using namespace mlir;

namespace pipec {

int64_t usualClassAxis(int64_t rank) { return rank == 4 ? 1 : rank - 1; }

int64_t otherClassAxis(int64_t rank) {
  return rank < 3 ? -1 : rank == 4 ? rank - 1 : 1;
}

/// A weight, however it is laid out.
static bool isWeight(Value value) {
  while (Operation *def = value.getDefiningOp()) {
    if (isa<nn::WeightOp>(def))
      return true;
    if (!isa<nn::TransposeOp, nn::ReshapeOp, nn::CastOp, nn::BroadcastOp>(def))
      return false;
    value = def->getOperand(0);
  }
  return false;
}

int64_t axisThatLayerMakes(Value logits) {
  const int64_t rank = nn::tensorType(logits).getRank();
  bool isLastKept = true, isSecondKept = true; // by the reshapes on the way
  while (Operation *def = logits.getDefiningOp()) {
    if (auto product = dyn_cast<nn::MatmulOp>(def))
      return isLastKept && isWeight(product.getB()) ? rank - 1 : -1;
    if (isa<nn::ConvOp, nn::ConvGradInputOp>(def))
      return isSecondKept ? 1 : -1;
    const RankedTensorType type = nn::tensorType(logits);
    if (auto reshape = dyn_cast<nn::ReshapeOp>(def)) {
      const ArrayRef<int64_t> to = type.getShape(),
                              from = nn::tensorType(reshape.getX()).getShape();
      isLastKept &= !from.empty() && !to.empty() && from.back() == to.back();
      isSecondKept &= from.size() > 1 && to.size() > 1 &&
                      from.take_front(2) == to.take_front(2);
      logits = reshape.getX();
      continue;
    }
    // A bias, a scale, an activation: on with what has the same shape and is
    // computed.
    if (isa<nn::TransposeOp, nn::GatherOp>(def))
      return -1;
    const auto next = llvm::find_if(def->getOperands(), [&](Value operand) {
      auto of = dyn_cast<RankedTensorType>(operand.getType());
      return of && of.getShape() == type.getShape() && !isWeight(operand);
    });
    if (next == def->operand_end())
      return -1;
    logits = *next;
  }
  return -1;
}

} // namespace pipec
