//===- Unsigned.cpp - unsigned integers as signed ones --------------------===//
//
// Targets have signed integers alone. Tensors of uint8, uint16 and uint32 are
// so in memory; what computes with them computes in i64, where they fit, and
// wraps when it is cast back.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Importer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace pipec::onnx {

static bool isUnsigned(Type type) {
  auto element = dyn_cast<IntegerType>(getElementTypeOrSelf(type));
  return element && element.isUnsigned() && element.getWidth() <= 32;
}

/// Whether the op is one of those that are left: a read, or a cast from or to
/// i64.
static bool isPlain(Operation &op) {
  if (isa<nn::WeightOp, func::ReturnOp>(op))
    return true;
  if (!isa<nn::CastOp>(op))
    return false;
  const Type from = getElementTypeOrSelf(op.getOperand(0).getType()),
             to = getElementTypeOrSelf(op.getResult(0).getType());
  return from.isSignlessInteger(64) || to.isSignlessInteger(64);
}

void Importer::signUnsignedOps() {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    const bool touches = llvm::any_of(op.getOperandTypes(), isUnsigned) ||
                         llvm::any_of(op.getResultTypes(), isUnsigned);
    if (!touches || isPlain(op))
      continue;
    nn::NNBuilder b(op.getLoc(), &op);
    const Type i64 = b.getI64Type();
    for (OpOperand &operand : op.getOpOperands())
      if (isUnsigned(operand.get().getType()))
        operand.set(nn::cast(b, operand.get(), i64));
    if (auto constant = dyn_cast<nn::ConstantOp>(op)) {
      const auto value = cast<DenseElementsAttr>(constant.getValue());
      constant.setValueAttr(
          nn::Literal(RankedTensorType::get(value.getType().getShape(), i64),
                      nn::Literal::fromAttr(value).integers())
              .toAttr());
    }
    b.setInsertionPointAfter(&op);
    for (Value result : op.getResults()) {
      const auto type = nn::tensorType(result);
      if (!isUnsigned(type))
        continue;
      result.setType(withElement(type, i64));
      Value back = nn::cast(b, result, type.getElementType());
      result.replaceAllUsesExcept(back, back.getDefiningOp());
    }
  }
}

} // namespace pipec::onnx
