//===- NNDialect.cpp - registration of the nn dialect ---------------------===//
#include "dialects/nn/NN.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

#include "dialects/nn/NNDialect.cpp.inc"
#include "dialects/nn/NNInterfaces.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/nn/NNOps.cpp.inc"

void pipec::nn::NNDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/nn/NNOps.cpp.inc"
      >();
}
