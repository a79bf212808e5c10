//===- Passes.td - the CPU target's steps as passes ------------*- tablegen -*-===//
#ifndef PIPEC_TARGET_CPU_PASSES
#define PIPEC_TARGET_CPU_PASSES

include "mlir/Pass/PassBase.td"

def CpuExpand : Pass<"cpu-expand", "::mlir::func::FuncOp"> {
  let summary = "composed nn ops in terms of simpler ones";
  let description = [{
    softmax becomes a row group, cumsum log2(n) shifted additions, and a sum of
    padded parts that do not overlap a concat.

    ```mlir
    %y = nn.softmax %x
    // after
    %m = nn.reduce %x {kind = "max"}    %e = nn.exp (%x - %m)
    %s = nn.reduce %e {kind = "sum"}    %y = %e * (1 / %s)
    ```
  }];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def CpuWidenContractions : Pass<"cpu-widen-contractions", "::mlir::func::FuncOp"> {
  let summary = "narrow convolutions in f32, products of bf16 as sums";
  let description = [{
    Convolutions, and products of f16, are computed in f32, where products of
    narrow numbers are exact; the casts become part of the kernels before and
    after. Products of bf16 keep their factors, which the CPU's kernels multiply
    with the processor's instruction where it has one, and are rounded behind.

    ```mlir
    %y = nn.matmul %a, %b : f16     ->    %0 = nn.cast %a : f32
                                          %1 = nn.cast %b : f32
                                          %2 = nn.matmul %0, %1 : f32
                                          %y = nn.cast %2 : f16
    %y = nn.matmul %a, %b : bf16    ->    %0 = nn.matmul %a, %b {wide} : f32
                                          %y = nn.cast %0 : bf16
    ```
  }];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def CpuStash : Pass<"cpu-stash", "::mlir::ModuleOp"> {
  let summary = "stores stashed tensors in the order that their reader needs";
  let description = [{
    Where every reader of a stash place would have to copy it to see it through
    its views, the writer stores it behind those views.

    ```mlir
    pipe.store %x, "stash" […]             pipe.store %v(%x), "stash" […]
    …                                ->    …
    %v(pipe.load "stash" […])              pipe.load "stash" […]
    ```
  }];
  let dependentDialects = ["::pipec::nn::NNDialect", "::pipec::pipe::PipeDialect"];
}

def CpuKernels : Pass<"cpu-kernels", "::mlir::ModuleOp"> {
  let summary = "the tasks of a stage as kernels in upstream dialects and calls";
  let description = [{
    Each function with `pipe.task` becomes `pipec_<task>`, straight-line code over
    a frame (runtime/StageAbi.h) that calls kernels through `pipec_parallel` and
    library functions. Kernels are scf loops over rows and lanes; equal ones are
    there once. `cpu.workspace` of a task says how many bytes it needs.
  }];
  let options = [
    Option<"fuse", "fuse", "bool", "true", "several ops in one kernel">,
    Option<"avx512", "avx512", "bool", "false", "use instructions of AVX-512">];
  let dependentDialects = [
      "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
      "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
      "::mlir::vector::VectorDialect"];
}

#endif
