//===- Passes.td - the CUDA target's steps as passes -----------*- tablegen -*-===//
#ifndef PIPEC_TARGET_CUDA_PASSES
#define PIPEC_TARGET_CUDA_PASSES

include "mlir/Pass/PassBase.td"

def CudaAttentionStash : Pass<"cuda-attention-stash", "::mlir::ModuleOp"> {
  let summary = "what attention keeps lies as its neighbours have it";
  let description = [{
    Kernels of attention reach rows anywhere: slices of one tensor are kept as
    that tensor, the result in the order in which a product reads it.

    ```mlir
    %y = nn.attention %q, %k, %v
    pipe.store %y, "stash"[0]
    %t = nn.transpose %y
    // after
    %t = nn.transpose %y
    pipe.store %t, "stash"[0]
    ```
  }];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def CudaEvenPadding : Pass<"cuda-even-padding", "::mlir::func::FuncOp"> {
  let summary = "convolutions whose axes are padded alike at both ends";
  let description = [{
    cuDNN knows no others. The input is padded or cropped before, its gradient
    after.

    ```mlir
    %y = nn.conv %x, %w {pads_low = 0, pads_high = 1}
    // after
    %0 = nn.pad %x {low = 0, high = 1}
    %y = nn.conv %0, %w {pads_low = 0, pads_high = 0}
    ```
  }];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def CudaKernels : Pass<"cuda-kernels", "::mlir::ModuleOp"> {
  let summary = "the tasks of a stage as device functions and what launches them";
  let description = [{
    Module `device` gets the kernels, functions of pointers with the number of
    threads of a block (`cuda.threads`); equal ones are there once. Module `host`
    gets `pipec_<task>` for each function with `pipe.task`: straight-line code
    over a frame that calls the table of the device (runtime/StageAbi.h).
    `cuda.workspace` of a task says how many bytes it needs.

    ```mlir
    %y = nn.relu %x
    // after
    module @device { func.func @kernel0(%x: !llvm.ptr, %y: !llvm.ptr) … }
    module @host { func.func @pipec_forward(%frame: !llvm.ptr) … }
    ```
  }];
  let options = [
    Option<"fuse", "fuse", "bool", "true", "several ops in one kernel">];
  let dependentDialects = [
      "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
      "::mlir::math::MathDialect", "::mlir::NVVM::NVVMDialect",
      "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif
