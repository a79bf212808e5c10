//===- Passes.td - every pass, with the IR before and after ----*- tablegen -*-===//
#ifndef PIPEC_PASSES
#define PIPEC_PASSES

include "mlir/Pass/PassBase.td"

def MarkOutputs : Pass<"pipe-mark-outputs", "::mlir::ModuleOp"> {
  let summary = "each output of the model becomes a pipe.output op";
  let description = [{
    For programs that are run and not trained. The op stands right behind what
    makes the value, so that outputs are placed on stages as nodes are and a
    value is never sent only to be an output. With `keep-results` the results
    stay as well: a loss follows.

    ```mlir
    func.func @main(…) -> (tensor<8x10xf32> {nn.name = "y", nn.batch_axis = 0 : i64})
      %y = nn.relu %x                  func.func @main(…)
      return %y                  ->      %y = nn.relu %x
                                         pipe.output %y as "y"
                                         return
    ```
  }];
  let options = [Option<"keepResults", "keep-results", "bool", "false", "@main still returns the outputs">];
  let dependentDialects = ["::pipec::pipe::PipeDialect"];
}

def AttachLoss : Pass<"nn-attach-loss", "::mlir::ModuleOp"> {
  let summary = "replaces the model's outputs by the training loss of a microbatch";
  let description = [{
    The label becomes a function argument (or, for `next-token`, the model input
    of that name is used). Losses are composed of core ops, so that their
    gradients follow. Ops that the loss does not need disappear.

    ```mlir
    func.func @main(%x: tensor<8x4xf32> {nn.name = "x"}) -> (tensor<8x10xf32> {nn.name = "logits"})
    // after loss=mse
    func.func @main(%x: …, %t: tensor<8x10xf32> {nn.name = "targets"}) -> (tensor<f32> {nn.name = "loss"})
    ```

    With `per-sample=NAME` an output takes the loss's place: the sum of every
    sample's terms and how much they count. Samples that are there twice can then
    be left out, and the loss of all data is the mean over what is counted. A
    loss that the model computes, or whose axis 0 is not that of the samples,
    stays.

    ```mlir
    pipe.output %sums_and_counts as "NAME" {batch_axis = 0} : tensor<8x2xf32>
    ```
  }];
  let options =
      [Option<"kind", "kind", "std::string", "\"cross-entropy\"",
              "cross-entropy, next-token, mse, bce or output">,
       Option<"label", "label", "std::string", "\"\"",
              "name of the label input; empty: the kind's default">,
       Option<"ignoreIndex", "ignore-index", "int64_t", "-100",
              "label that is not counted">,
       Option<"classAxis", "class-axis", "int64_t", "-1",
              "axis of the logits that has the classes; -1: as the label's "
              "shape says, else the last one, axis 1 for rank 4">,
       Option<"labelSmoothing", "label-smoothing", "double", "0.0",
              "part of the target that all classes share">,
       ListOption<"classWeights", "class-weights", "double",
                  "how much rows of each class count; none: 1">,
       Option<"posWeight", "pos-weight", "double", "1.0",
              "how much positive targets of bce count">,
       Option<"logits", "logits", "std::string", "\"\"",
              "output that the loss takes; empty: the first floating one">,
       Option<"perSample", "per-sample", "std::string", "\"\"",
              "output instead of the loss: what the loss of every sample is "
              "made of">];
  let dependentDialects = ["::pipec::nn::NNDialect",
                           "::pipec::pipe::PipeDialect"];
}

def FuseAttention : Pass<"nn-fuse-attention", "::mlir::ModuleOp"> {
  let summary = "softmax(scale * q k' + mask) v as one op that keeps no scores";
  let description = [{
    However it is spelled: the scale on q, on k, on the scores or on all of them,
    by products or quotients; masks that are added or selected, of any number,
    read from constants or known at run time; scores reshaped on the way; NaN
    rows set to zero. Masks whose values are triangular become `causal`. Left as
    it is where the probabilities are read by anything else (an output, a
    dropout), a mask trains, masks could not be told by one bias
    (AttentionMask.h), or heads are larger than `most-head-size`. Other numbers
    than before by rounding alone: the sums of a row have another order.

    ```mlir
    %s = nn.matmul %q, %k {transpose_b}
    %t = nn.mul %s, %c (0.125)           ->   %y, %tops, %shares = nn.attention %q, %k, %v
    %u = nn.add %t, %mask                         {scale = 0.125, causal}
    %p = nn.softmax %u
    %y = nn.matmul %p, %v
    ```
  }];
  let options = [Option<"mostHeadSize", "most-head-size", "int64_t", "128", "what the GPU's kernels hold">];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def Precision : Pass<"nn-precision", "::mlir::ModuleOp"> {
  let summary = "products and convolutions in a narrow type, all else in f32";
  let description = [{
    Mixed precision as PyTorch's autocast has it: contractions read rounded
    operands, add in f32 and round their result once. Weights, sums, losses and
    updates stay f32, and so do gradients of weights (nn.cast's gradient). What
    comes from no trained weight and no floating-point input, such as the angles
    of rotary positions, is left as it is. Standing before the partition, the
    pass rounds the same numbers wherever stages are cut.

    An exp, tanh or sigmoid of what is rounded has `nn.rough`: a device may take
    fewer instructions for it. `y / 2 * (1 + tanh(u))` of such a tanh, as GELU has
    it, becomes `y sigmoid(2u)`.

    With `biases` a product to which a bias is added, of which sum only rounded
    numbers are read, is not rounded before: the bias is, as libraries have it
    that add one, and the sum once.

    ```mlir
    %y = nn.matmul %x, %w : f32     ->     %0 = nn.cast %x : bf16
                                           %1 = nn.cast %w : bf16
                                           %2 = nn.matmul %0, %1 : bf16
                                           %y = nn.cast %2 : f32
    ```
  }];
  let options = [Option<"type", "type", "std::string", "\"fp32\"", "fp32 (changes nothing) or bf16">,
                 Option<"biases", "biases", "bool", "false", "products and their biases are rounded as one">];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def SplitUses : Pass<"nn-split-uses", "::mlir::ModuleOp"> {
  let summary = "one nn.weight op for every model operator that reads the parameter";
  let description = [{
    A use is what can be placed on a stage by itself and what has a gradient
    accumulator of its own. Chains of ops that read weights and constants alone
    (a transposed weight) are cloned with it. Ops that came from one model
    operator (equal locations) share a use, so an unrolled LSTM has one.

    ```mlir
    %w = nn.weight @w                 %w0 = nn.weight @w
    %a = nn.gather %w, …       ->     %a = nn.gather %w0, …
    %b = nn.matmul %x, %w             %w1 = nn.weight @w
                                      %b = nn.matmul %x, %w1
    ```
  }];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def AssignStages : Pass<"pipe-assign-stages", "::mlir::ModuleOp"> {
  let summary = "writes a partition into the IR: `pipe.stage` on every op";
  let description = [{
    `cuts` are positions in the model's chain of nodes (all ops that depend on
    an input), the first node of each stage but the first. Ops that read weights
    and constants alone go where they are used.

    ```mlir
    %h = nn.matmul %x, %w0   ->   %h = nn.matmul %x, %w0 {pipe.stage = 0 : i64}
    %y = nn.matmul %h, %w1        %y = nn.matmul %h, %w1 {pipe.stage = 1 : i64}
    ```
  }];
  let options = [ListOption<"cuts", "cuts", "int64_t", "first node of stages 1, 2, …">];
}

def SliceSequence : Pass<"nn-slice-sequence", "::mlir::ModuleOp"> {
  let summary = "unrolls a causal language model into pieces of its sequence";
  let description = [{
    Stage s of P becomes stages s, P + s, 2P + s, ...: one for each of `slices`
    pieces, which `pipe.slices` on the module counts. Every op is there once for
    each piece, on the positions of that piece; attention reads the keys and
    values of its own and all earlier pieces, joined one after the other. That
    is legal where the mask takes the weight of later positions to exactly 0:
    its values are checked, constants and combinations of them with what is only
    known at run time. Anything else is an error at the op that reads positions
    of later pieces. Copies of an nn.weight share a use (`pipe.use`). The loss,
    a sum over positions, adds the pieces' sums on the last stage.

    ```mlir
    %k = nn.matmul %x, %w {pipe.stage = 0}     : 1x8x4
    %s = nn.matmul %q, %k {transpose_b, …}     : 1x8x8
    // after slices=2
    %k0 = nn.matmul %x0, %w0 {pipe.stage = 0}  : 1x4x4
    %k1 = nn.matmul %x1, %w1 {pipe.stage = 1}  : 1x4x4
    %s0 = nn.matmul %q0, %k0 {transpose_b, …}  : 1x4x4
    %k01 = nn.concat %k0, %k1 {axis = 1, …}    : 1x8x4
    %s1 = nn.matmul %q1, %k01 {transpose_b, …} : 1x4x8
    ```
  }];
  let options = [Option<"slices", "slices", "int64_t", "1", "pieces of a sequence">];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def Differentiate : Pass<"nn-differentiate", "::mlir::ModuleOp"> {
  let summary = "appends the gradient of the loss to @main";
  let description = [{
    Reverse mode over the whole graph; each gradient op gets the stage of the op
    it belongs to and `pipe.phase = "backward"`. Contributions to a value are
    added in reverse program order, a gradient of a weight is handed over for
    each use (`pipe.accumulate`). Both orders do not depend on the partition, so
    all partitions compute the same bits. The loss of a microbatch counts
    1/microbatches.

    ```mlir
    %y = nn.matmul %x, %w          %y = nn.matmul %x, %w
    return %l                ->    %dw = nn.matmul %x, %dy {transpose_a, pipe.phase = "backward"}
                                   pipe.accumulate %dw into @w use 0
    ```
  }];
  let options = [
    Option<"microbatches", "microbatches", "int64_t", "1", "microbatches averaged in an update">,
    Option<"zeroGradients", "zero-gradients", "bool", "false", "accept a loss that no weight has a slope for">];
  let dependentDialects = ["::pipec::nn::NNDialect", "::pipec::pipe::PipeDialect"];
}

def ChooseStash : Pass<"nn-choose-stash", "::mlir::ModuleOp"> {
  let summary = "computes cheap values again in the backward pass instead of keeping them";
  let description = [{
    Elementwise ops and views that the backward pass reads are cloned there when
    what they read is kept anyhow (or is one tensor, no larger: then that is
    kept). Fusion makes the clones free, but for those that a contraction reads,
    which are written to memory again: `mode=none` keeps these. `mode=full`
    clones all forward ops of a stage: only stage inputs are kept (GPipe's
    re-materialization); `again` names single stages for that. Of keys and values that were joined from
    pieces of a sequence, this piece's are kept. Values do not change: the
    clones are the same ops on the same operands.

    The other way round, gradients that need none from elsewhere, as a loss's
    first ones, move to the forward pass (`pipe.phase = "early"`) where they are
    no more bytes than what then need not be kept.

    ```mlir
    %t = nn.tanh %h
    %d = nn.mul %g, %t {pipe.phase = "backward"}
    // after: %h is kept, not %t
    %t2 = nn.tanh %h {pipe.phase = "backward"}
    %d = nn.mul %g, %t2 {pipe.phase = "backward"}

    %y = nn.matmul %x, %w
    %d = nn.sub %y, %t {pipe.phase = "backward"}
    %g = nn.matmul %x, %d {pipe.phase = "backward", transpose_a}
    // after: %d is kept, not %y
    %d = nn.sub %y, %t {pipe.phase = "early"}
    ```
  }];
  let options = [Option<"mode", "mode", "std::string", "\"selective\"", "none, selective or full">,
                 ListOption<"again", "again", "int64_t", "stages that are cloned as with full, whatever the mode">];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def SplitStages : Pass<"pipe-split-stages", "::mlir::ModuleOp"> {
  let summary = "one nested module a stage, one function a task";
  let description = [{
    Values that cross stages become `pipe.send`/`pipe.recv`, values that cross
    tasks of a stage `pipe.stash`/`pipe.unstash`. A value goes from the stage
    that makes it straight to each stage that reads it, however many lie between.
    With `split-backward`, what no other stage waits for becomes a task of its
    own (backward_weight).

    ```mlir
    module @stage1 attributes {pipe.stage = 1 : i64} {
      nn.parameter @w …
      func.func @forward() attributes {pipe.task = "forward"} {
        %h = pipe.recv 0 from 0 : tensor<4x8xf32>
        …
    ```
  }];
  let options = [Option<"splitBackward", "split-backward", "bool", "false", "separate input and weight gradients">];
  let dependentDialects = ["::pipec::nn::NNDialect", "::pipec::pipe::PipeDialect"];
}

def RoundWeights : Pass<"pipe-round-weights", "::mlir::ModuleOp"> {
  let summary = "weights that tasks round are read from copies that the update keeps";
  let description = [{
    A trained weight that a task rounds to bf16, also behind views, is read
    rounded: `pipe-plan-memory` places a copy behind the stage's weights, and
    `pipe-attach-optimizer` has the update write it, so that no microbatch
    rounds a matrix. Vectors (biases) are rounded by the tasks. Numbers are the
    same.

    ```mlir
    %w = nn.weight @w : tensor<8x16xf32>         %w = nn.weight @w : tensor<8x16xbf16>
    %v = nn.transpose %w [1, 0] : …f32       ->  %v = nn.transpose %w [1, 0] : …bf16
    %r = nn.cast %v : … to tensor<16x8xbf16>     %y = nn.matmul %x, %v
    %y = nn.matmul %x, %r
    ```
  }];
  let dependentDialects = ["::pipec::nn::NNDialect"];
}

def PlanMemory : Pass<"pipe-plan-memory", "::mlir::ModuleOp"> {
  let summary = "gives every tensor that outlives a task its region and offset";
  let description = [{
    All ops of the first form of the pipe dialect become `pipe.load` and
    `pipe.store`. Trained weights, their gradients and each optimizer state have
    the same offsets, so that the update is one flat kernel. Sizes and places are
    written to attributes of the stage modules (`pipe.regions`, `pipe.inputs`,
    `pipe.weights`) and of the module (`pipe.edges`), from which the plan is made.

    ```mlir
    %h = pipe.recv 0 from 0 : tensor<4x8xf32>  ->  %h = pipe.load "in" [0] : tensor<4x8xf32>
    pipe.stash %h in "stash" 0                 ->  pipe.store %h, "stash" [0]
    ```

    What goes from one stage to another lies side by side at both ends where the
    stage does not keep it anyway, and travels as one message.

    Weights that tasks read rounded lie behind others, and behind all of them
    the rounded copies. `pipe.rounded` says which bytes have copies where:
    `rows` of `row` numbers, one behind the other from `offset` on, from `to` on
    with `pitch` numbers from row to row. All copies without gaps are one row.

    With `even-rows` (GPUs) matrices whose rows have no whole 16 bytes are kept
    with a gap behind each row: `pipe.store %logits, "stash" [0] pitch 50304`, and
    so are rounded copies.
  }];
  let options = [Option<"evenRows", "even-rows", "bool", "false", "matrices are kept with rows of whole 16 bytes">];
  let dependentDialects = ["::pipec::nn::NNDialect", "::pipec::pipe::PipeDialect"];
}

def AttachOptimizer : Pass<"pipe-attach-optimizer", "::mlir::ModuleOp"> {
  let summary = "adds the update and track tasks of every stage";
  let description = [{
    The update is PyTorch's arithmetic over all weights of a stage at once, or
    over those of each piece of `pipe.rounded` and what lies between; learning-
    rate factor, gradient scale and update number are run-time inputs.
    `pipe-plan-memory` must have run. New values of weights with rounded copies
    are stored rounded as well.

    ```mlir
    func.func @update() attributes {pipe.task = "update"} {
      %w = pipe.load "weights" [0] : tensor<4096xf32>
      %g = pipe.load "gradients" [0] : tensor<4096xf32>
      …
      pipe.store %n, "new_weights" [0] : tensor<4096xf32>
    ```
  }];
  let options = [
    Option<"kind", "kind", "std::string", "\"sgd\"", "a row of Optimizers.def">,
    ListOption<"settings", "settings", "std::string", "name=value">];
  let dependentDialects = ["::mlir::func::FuncDialect", "::pipec::nn::NNDialect", "::pipec::pipe::PipeDialect"];
}

def VerifyStages : Pass<"pipe-verify-stages", "::mlir::ModuleOp"> {
  let summary = "checks what the split promised";
  let description = [{
    Each edge has one sender and a receiver of the same type on the stages it
    names; forward edges lead to later stages, backward edges to earlier ones;
    what is unstashed was stashed once by an earlier task with the same type;
    each use of a trained weight has at most one gradient. Changes nothing.
  }];
}

#endif
