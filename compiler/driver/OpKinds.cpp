//===- OpKinds.cpp - what an operator is to a device ----------------------===//
#include "compiler/driver/OpKinds.h"

#include "dialects/nn/NN.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

plan::OpKind pipec::kindOf(Operation *op) {
  if (isa<MatmulOp>(op))
    return plan::OpKind::MatMul;
  if (isa<AttentionOp, AttentionGradQueryOp, AttentionGradKeysOp>(op))
    return plan::OpKind::Attention;
  if (auto costed = dyn_cast<Costed>(op); costed && costed.isContraction())
    return plan::OpKind::Convolution;
  if (isa<ReduceOp, SoftmaxOp>(op))
    return plan::OpKind::Reduction;
  return plan::OpKind::Elementwise;
}

plan::DType pipec::dtypeOf(Operation *op) {
  auto costed = dyn_cast<Costed>(op);
  if (!costed || !costed.isContraction())
    return plan::DType::F32;
  Type element = tensorType(op->getOperand(0)).getElementType();
  return element.isBF16()  ? plan::DType::BF16
         : element.isF16() ? plan::DType::F16
                           : plan::DType::F32;
}
