//===- Cost.cpp - the work of an op, where its family says no more --------===//
#include "dialects/nn/NN.h"

using namespace mlir;

namespace pipec::nn {

int64_t byteSize(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  unsigned bits = tensor.getElementType().getIntOrFloatBitWidth();
  return tensor.getNumElements() * std::max(1u, bits / 8);
}

/// One operation an element of the larger of input and output: right for
/// elementwise ops and reductions, an upper bound for copies.
int64_t defaultFlops(Operation *op) {
  if (op->hasTrait<View>() || isa<ConstantOp, WeightOp>(op))
    return 0;
  int64_t elements = 0;
  for (Type type : op->getResultTypes())
    elements =
        std::max(elements, cast<RankedTensorType>(type).getNumElements());
  for (Value v : op->getOperands())
    elements = std::max(elements, tensorType(v).getNumElements());
  return elements;
}

int64_t defaultBytesMoved(Operation *op) {
  if (op->hasTrait<View>() || isa<ConstantOp, WeightOp>(op))
    return 0;
  int64_t bytes = 0;
  for (Type type : op->getResultTypes())
    bytes += byteSize(type);
  for (Value v : op->getOperands())
    bytes += byteSize(v.getType());
  return bytes;
}

} // namespace pipec::nn
