//===- EvenRows.cpp - matrices whose rows are padded ----------------------===//
#include "dialects/nn/EvenRows.h"
#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec;

/// What one access of a GPU takes, and the line of its caches.
constexpr int64_t kAccess = 16, kLine = 128;
/// From so many bytes on a row may as well fill whole lines.
constexpr int64_t kLongRow = 2048;
/// A gap would be much of a shorter row, and fewer rows are little work.
constexpr int64_t kLeastElements = 64, kLeastRows = 16;

int64_t nn::evenPitch(RankedTensorType type) {
  Type element = type.getElementType();
  if (type.getRank() < 2 || !isa<FloatType>(element))
    return 0;
  const int64_t row = type.getShape().back();
  const int64_t size = llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
  if (row < kLeastElements || type.getNumElements() < kLeastRows * row ||
      row * size % kAccess == 0)
    return 0;
  return static_cast<int64_t>(llvm::alignTo(
             row * size, row * size < kLongRow ? kAccess : kLine)) /
         size;
}

static bool isReordering(Operation *op) {
  return isa<nn::ReshapeOp, nn::TransposeOp>(op);
}

static bool isMultiplied(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isa<nn::MatmulOp>(user) ||
           (isReordering(user) && isMultiplied(user->getResult(0)));
  });
}

int64_t nn::evenPitch(Value value) {
  const int64_t pitch = evenPitch(tensorType(value));
  if (!pitch || isMultiplied(value))
    return pitch;
  Operation *op = value.getDefiningOp();
  while (op && isReordering(op))
    op = op->getOperand(0).getDefiningOp();
  return isa_and_nonnull<nn::MatmulOp>(op) ? pitch : 0;
}
