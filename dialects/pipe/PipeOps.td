//===- PipeOps.td - stages, tasks and what passes between them -*- tablegen -*-===//
#ifndef PIPEC_PIPE_OPS
#define PIPEC_PIPE_OPS

include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Pipe_Dialect : Dialect {
  let name = "pipe";
  let cppNamespace = "::pipec::pipe";
  let summary = "A model cut into stages, each stage into tasks";
  let description = [{
    A stage is a nested `module` with the attribute `pipe.stage`; a task is a
    `func.func` without arguments and results and with the attribute `pipe.task`
    (forward, backward, backward_input, backward_weight, update, track). What
    enters and leaves a task is said by ops, in two forms:

    * before memory is planned: `pipe.input`, `pipe.recv`, `pipe.send`,
      `pipe.stash`, `pipe.unstash`, `pipe.accumulate`, `pipe.loss` (and
      `nn.weight`, `nn.track`);
    * after: `pipe.load` and `pipe.store` at constant offsets of a region of
      runtime/StageAbi.h, all that a code generator needs to know.
  }];
}

def Pipe_Tensor : StaticShapeTensorOf<[AnyType]>;

class Pipe_Op<string mnemonic, list<Trait> traits = []>
    : Op<Pipe_Dialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// Before memory is planned
//===----------------------------------------------------------------------===//

def Pipe_InputOp : Pipe_Op<"input", [Pure]> {
  let summary = "a model input (or label) of this microbatch";
  let arguments = (ins StrAttr:$input);
  let results = (outs Pipe_Tensor:$y);
  let assemblyFormat = "$input attr-dict `:` type($y)";
}
def Pipe_RecvOp : Pipe_Op<"recv", [Pure]> {
  let summary = "the tensor of this microbatch that stage `from` sends on `edge`";
  let arguments = (ins I64Attr:$edge, I64Attr:$from);
  let results = (outs Pipe_Tensor:$y);
  let assemblyFormat = "$edge `from` $from attr-dict `:` type($y)";
}
def Pipe_SendOp : Pipe_Op<"send"> {
  let summary = "sends the tensor to stage `to` on `edge` when the task ends";
  let arguments = (ins Pipe_Tensor:$x, I64Attr:$edge, I64Attr:$to);
  let assemblyFormat = "$x `on` $edge `to` $to attr-dict `:` type($x)";
}
def Pipe_StashOp : Pipe_Op<"stash"> {
  let summary = "keeps a tensor of this microbatch for a later task of this stage";
  let description = [{
    `kind` is "stash" (forward to backward) or "wstash" (backward_input to
    backward_weight).
  }];
  let arguments = (ins Pipe_Tensor:$x, StrAttr:$kind, I64Attr:$slot);
  let assemblyFormat = "$x `in` $kind $slot attr-dict `:` type($x)";
}
def Pipe_UnstashOp : Pipe_Op<"unstash", [Pure]> {
  let summary = "the tensor kept by an earlier task for this microbatch";
  let arguments = (ins StrAttr:$kind, I64Attr:$slot);
  let results = (outs Pipe_Tensor:$y);
  let assemblyFormat = "$kind $slot attr-dict `:` type($y)";
}
def Pipe_AccumulateOp : Pipe_Op<"accumulate"> {
  let summary = "adds a gradient to the accumulator of one use of a weight";
  let arguments = (ins Pipe_Tensor:$gradient, FlatSymbolRefAttr:$parameter, I64Attr:$use);
  let assemblyFormat = "$gradient `into` $parameter `use` $use attr-dict `:` type($gradient)";
}
def Pipe_LossOp : Pipe_Op<"loss"> {
  let summary = "the loss of this microbatch, a rank-0 tensor";
  let arguments = (ins Pipe_Tensor:$x);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}
def Pipe_OutputOp : Pipe_Op<"output"> {
  let summary = "a named model output of this microbatch, kept for whoever asks";
  let description = [{
    Stands in @main already, so that a partition places it like a node.
    `batch_axis` is the axis that counts samples, or -1.
  }];
  let arguments = (ins Pipe_Tensor:$x, StrAttr:$output, DefaultValuedAttr<I64Attr, "0">:$batch_axis);
  let assemblyFormat = "$x `as` $output attr-dict `:` type($x)";
}

//===----------------------------------------------------------------------===//
// After
//===----------------------------------------------------------------------===//

defvar Pipe_placeDeclarations = [{
  /// Elements from one index of each dimension to the next.
  llvm::SmallVector<int64_t> strides();
  /// Bytes from the first element to behind the last row.
  int64_t bytes();
}];

def Pipe_LoadOp : Pipe_Op<"load", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "the tensor at `offset` bytes of `region`";
  let description = [{
    Row-major. With a `pitch` so many elements lie between the beginnings of two
    rows (of the last dimension), of which those behind the row mean nothing.
  }];
  let arguments = (ins StrAttr:$region, I64Attr:$offset, DefaultValuedAttr<I64Attr, "0">:$pitch);
  let results = (outs Pipe_Tensor:$y);
  let assemblyFormat = "$region `[` $offset `]` (`pitch` $pitch^)? attr-dict `:` type($y)";
  let extraClassDeclaration = Pipe_placeDeclarations;
  let hasVerifier = 1;
}
def Pipe_StoreOp : Pipe_Op<"store", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "writes (or, with `accumulate`, adds) at `offset` bytes of `region`";
  let arguments = (ins Pipe_Tensor:$x, StrAttr:$region, I64Attr:$offset, UnitAttr:$accumulate,
                       DefaultValuedAttr<I64Attr, "0">:$pitch);
  let assemblyFormat = "$x `,` $region `[` $offset `]` (`pitch` $pitch^)? (`accumulate` $accumulate^)? attr-dict `:` type($x)";
  let extraClassDeclaration = Pipe_placeDeclarations;
  let hasVerifier = 1;
}
def Pipe_ScalarOp : Pipe_Op<"scalar", [Pure]> {
  let summary = "a number the runtime passes: lr_factor grad_scale update as f64, seed step microbatch as i64";
  let arguments = (ins StrAttr:$name);
  let results = (outs Pipe_Tensor:$y);
  let assemblyFormat = "$name attr-dict `:` type($y)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// The schedule
//===----------------------------------------------------------------------===//

def Pipe_RankOp : Pipe_Op<"rank"> {
  let summary = "what one rank does in a step, in order";
  let description = [{
    Actions are written as in PyTorch's schedule files: stage, F (forward), B
    (backward), I (input gradient) or W (weight gradient), microbatch.

    ```mlir
    pipe.rank 1 runs [1] order "1F0,1B0,1F1,1B1"
    ```
  }];
  let arguments = (ins I64Attr:$rank, DenseI64ArrayAttr:$stages, StrAttr:$order);
  let assemblyFormat = "$rank `runs` $stages `order` $order attr-dict";
}

#endif
