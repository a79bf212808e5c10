//===- NNInterfaces.td - what passes may ask an nn op ----------*- tablegen -*-===//
#ifndef PIPEC_NN_INTERFACES
#define PIPEC_NN_INTERFACES

include "mlir/IR/OpBase.td"

def NN_DifferentiableInterface : OpInterface<"Differentiable"> {
  let cppNamespace = "::pipec::nn";
  let description = [{
    The gradient of an op. An op with a floating-point operand that matters for a
    trained weight and without this interface is a reported error, never a
    silent zero.
  }];
  let methods = [InterfaceMethod<[{
      Emits at `b` the gradients of the operands. `resultGrads` has one value a
      result (null where the loss does not depend on it, at least one is not).
      `operandGrads` has one slot an operand; slots with `needed` set are to be
      filled, or left null where the gradient is zero everywhere. May read the
      op's operands and results.
    }], "void", "backward",
    (ins "::mlir::ImplicitLocOpBuilder &":$b, "::mlir::ValueRange":$resultGrads,
         "const ::llvm::BitVector &":$needed,
         "::llvm::SmallVectorImpl<::mlir::Value> &":$operandGrads)>];
}

def NN_CostInterface : OpInterface<"Costed"> {
  let cppNamespace = "::pipec::nn";
  let description = "The work of an op, for the device model.";
  let methods = [
    InterfaceMethod<"Floating-point operations.", "int64_t", "flops", (ins), "",
      "return ::pipec::nn::defaultFlops($_op);">,
    InterfaceMethod<"Bytes read and written when the op runs alone; views are free.",
      "int64_t", "bytesMoved", (ins), "",
      "return ::pipec::nn::defaultBytesMoved($_op);">,
    InterfaceMethod<"Whether a tuned library routine does the work (matmul, convolution).",
      "bool", "isContraction", (ins), "", "return false;">];
}

/// One output element depends on the same element of each operand: fusable
/// anywhere, and cheaper to compute again than to keep.
def NN_Elementwise : NativeOpTrait<"Elementwise"> {
  let cppNamespace = "::pipec::nn";
}

/// Moves no data when the result can alias the operand (reshape), or only
/// changes how it is addressed (broadcast, transpose, slice).
def NN_View : NativeOpTrait<"View"> {
  let cppNamespace = "::pipec::nn";
}

#endif
