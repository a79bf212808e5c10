//===- Passes.td - the CPU target's steps as passes ------------*- tablegen -*-===//
#ifndef PIPEC_TARGET_CPU_PASSES
#define PIPEC_TARGET_CPU_PASSES

include "mlir/Pass/PassBase.td"

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
