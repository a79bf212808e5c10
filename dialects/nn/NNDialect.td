//===- NNDialect.td - the differentiable core ------------------*- tablegen -*-===//
#ifndef PIPEC_NN_DIALECT
#define PIPEC_NN_DIALECT

include "mlir/IR/OpBase.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::pipec::nn";
  let summary = "A small differentiable core for training graphs";
  let description = [{
    Every ONNX operator is composed at import from these ops, on ranked tensors
    of static shape. There is no implicit broadcasting: `nn.broadcast` says it.
    Each op states its result type, gradient and cost; passes ask interfaces.
    A graph is one `func.func @main`; tensors of the model file are symbols
    (`nn.parameter`), never constants in the IR.
  }];
}

#endif
