//===- Source.cpp - constants, parameters, numbers of the run -------------===//
#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec::nn;

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

LogicalResult CounterOp::verify() {
  if (!llvm::is_contained({"seed", "step", "microbatch"}, getName()))
    return emitOpError("has an unknown name '") << getName() << "'";
  auto type = cast<RankedTensorType>(getY().getType());
  if (type.getRank() != 0 || !type.getElementType().isSignlessInteger(64))
    return emitOpError("is a tensor<i64>");
  return success();
}

LogicalResult HashOp::verify() {
  if (!tensorType(getY()).getElementType().isSignlessInteger(64))
    return emitOpError("needs i64 operands");
  return success();
}

LogicalResult ParameterOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !type.hasStaticShape())
    return emitOpError("needs a tensor type of static shape");
  if (!llvm::is_contained({"weight", "frozen", "state", "constant"}, getRole()))
    return emitOpError("has an unknown role '") << getRole() << "'";
  bool byReference = getFile() && getOffset() && getLength();
  if (byReference == getValue().has_value())
    return emitOpError("needs either file, offset and length or a value");
  return success();
}

static LogicalResult verifyParameterUse(Operation *op, FlatSymbolRefAttr name,
                                        Type type, SymbolTableCollection &t) {
  auto parameter = t.lookupNearestSymbolFrom<ParameterOp>(op, name);
  if (!parameter)
    return op->emitOpError("names no nn.parameter: ") << name;
  if (parameter.getType() != type)
    return op->emitOpError("has type ")
           << type << " but the parameter has " << parameter.getType();
  return success();
}

LogicalResult WeightOp::verifySymbolUses(SymbolTableCollection &t) {
  Type type = getY().getType();
  if (auto parameter =
          t.lookupNearestSymbolFrom<ParameterOp>(*this, getParameterAttr());
      parameter && parameter.isTrained() &&
      tensorType(getY()).getElementType().isBF16())
    type = tensorType(getY()).clone(parameter.getTensorType().getElementType());
  return verifyParameterUse(*this, getParameterAttr(), type, t);
}
LogicalResult TrackOp::verifySymbolUses(SymbolTableCollection &t) {
  return verifyParameterUse(*this, getParameterAttr(), getX().getType(), t);
}
