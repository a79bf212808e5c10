//===- Passes.td - the steps that all targets share ------------*- tablegen -*-===//
#ifndef PIPEC_TARGET_FUSION_PASSES
#define PIPEC_TARGET_FUSION_PASSES

include "mlir/Pass/PassBase.td"

def FusionExpand : Pass<"fusion-expand", "::mlir::func::FuncOp"> {
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

def FusionWidenContractions : Pass<"fusion-widen-contractions", "::mlir::func::FuncOp"> {
  let summary = "narrow convolutions in f32, products of bf16 as sums";
  let description = [{
    Convolutions, and products of f16, are computed in f32, where products of
    narrow numbers are exact; the casts become part of the kernels before and
    after. Products of bf16 keep their factors, which the CPU's kernels multiply
    with the processor's instruction where it has one, and are rounded behind
    (on GPUs libraries round them, and convolve bf16).

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

def FusionStash : Pass<"fusion-stash", "::mlir::ModuleOp"> {
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

#endif
