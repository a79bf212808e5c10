//===- NNOps.td - the ops of the nn dialect --------------------*- tablegen -*-===//
#ifndef PIPEC_NN_OPS
#define PIPEC_NN_OPS

include "dialects/nn/NNDialect.td"
include "dialects/nn/NNInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_Tensor : StaticShapeTensorOf<[AnyType]>;

class NN_Op<string mnemonic, list<Trait> traits = []>
    : Op<NN_Dialect, mnemonic, !listconcat([Pure, NN_CostInterface], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

class NN_Differentiable<list<Trait> traits = []> {
  list<Trait> all = !listconcat(traits,
      [DeclareOpInterfaceMethods<NN_DifferentiableInterface>]);
}

/// The result type is a function of operands and attributes.
class NN_Inferred<list<Trait> traits = []> {
  list<Trait> all = !listconcat(traits, [
      DeclareOpInterfaceMethods<InferTypeOpInterface>]);
}

//===----------------------------------------------------------------------===//
// Elementwise (Elementwise.cpp)
//===----------------------------------------------------------------------===//

class NN_UnaryBase<string mnemonic, list<Trait> traits> : NN_Op<mnemonic,
    !listconcat([SameOperandsAndResultType, NN_Elementwise], traits)> {
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
}
class NN_Unary<string mnemonic, string text> : NN_UnaryBase<mnemonic,
    NN_Differentiable<>.all> { let summary = text; }
/// Piecewise constant: the gradient is zero wherever it exists.
class NN_Step<string mnemonic, string text> : NN_UnaryBase<mnemonic,
    NN_Differentiable<>.all> { let summary = text; }

def NN_NegOp : NN_Unary<"neg", "-x">;
def NN_AbsOp : NN_Unary<"abs", "|x|; gradient sign(x), 0 at 0">;
def NN_ExpOp : NN_Unary<"exp", "e^x">;
def NN_LogOp : NN_Unary<"log", "natural logarithm">;
def NN_Log1pOp : NN_Unary<"log1p", "log(1 + x)">;
def NN_SqrtOp : NN_Unary<"sqrt", "square root">;
def NN_RsqrtOp : NN_Unary<"rsqrt", "1/sqrt(x)">;
def NN_ReciprocalOp : NN_Unary<"reciprocal", "1/x">;
def NN_TanhOp : NN_Unary<"tanh", "hyperbolic tangent">;
def NN_ErfOp : NN_Unary<"erf", "Gauss error function">;
def NN_SigmoidOp : NN_Unary<"sigmoid", "1/(1 + e^-x)">;
def NN_ReluOp : NN_Unary<"relu", "max(x, 0), NaN stays; gradient 0 at 0">;
def NN_SinOp : NN_Unary<"sin", "sine">;
def NN_CosOp : NN_Unary<"cos", "cosine">;
def NN_FloorOp : NN_Step<"floor", "largest integer not above x">;
def NN_CeilOp : NN_Step<"ceil", "smallest integer not below x">;
def NN_RoundOp : NN_Step<"round", "nearest integer, halves to even">;
def NN_SignOp : NN_Step<"sign", "-1, 0 or 1; NaN stays">;
def NN_NotOp : NN_UnaryBase<"not", []> { let summary = "logical not of i1"; }
def NN_StopGradientOp : NN_UnaryBase<"stop_gradient", NN_Differentiable<>.all> {
  let summary = "x; no gradient flows back";
}

class NN_BinaryBase<string mnemonic, list<Trait> traits> : NN_Op<mnemonic,
    !listconcat([SameOperandsAndResultType, NN_Elementwise], traits)> {
  let arguments = (ins NN_Tensor:$a, NN_Tensor:$b);
  let results = (outs NN_Tensor:$y);
}
class NN_Binary<string mnemonic, string text> : NN_BinaryBase<mnemonic,
    NN_Differentiable<>.all> { let summary = text; }

def NN_AddOp : NN_Binary<"add", "a + b">;
def NN_SubOp : NN_Binary<"sub", "a - b">;
def NN_MulOp : NN_Binary<"mul", "a * b">;
def NN_DivOp : NN_Binary<"div", "a / b; integers truncate towards zero">;
def NN_PowOp : NN_Binary<"pow", "a ^ b">;
def NN_MaxOp : NN_Binary<"max", "larger of a and b, NaN wins; ties share the gradient">;
def NN_MinOp : NN_Binary<"min", "smaller of a and b, NaN wins; ties share the gradient">;
def NN_ModOp : NN_BinaryBase<"mod", NN_Differentiable<>.all> {
  let summary = "remainder: sign of b for integers (Python), of a with fmod";
  let arguments = (ins NN_Tensor:$a, NN_Tensor:$b, UnitAttr:$fmod);
}
def NN_AndOp : NN_BinaryBase<"and", []> { let summary = "bitwise and (i1: logical)"; }
def NN_OrOp : NN_BinaryBase<"or", []> { let summary = "bitwise or (i1: logical)"; }
def NN_XorOp : NN_BinaryBase<"xor", []> { let summary = "bitwise exclusive or"; }

def NN_CompareOp : NN_Op<"compare", NN_Inferred<[SameOperandsElementType,
    SameOperandsShape, NN_Elementwise]>.all> {
  let summary = "a <predicate> b as i1; predicate: eq ne lt le gt ge (floats: ordered, ne unordered)";
  let arguments = (ins NN_Tensor:$a, NN_Tensor:$b, StrAttr:$predicate);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_IsNanOp : NN_Op<"is_nan", NN_Inferred<[NN_Elementwise]>.all> {
  let summary = "whether x is NaN, as i1";
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
}
def NN_IsInfOp : NN_Op<"is_inf", NN_Inferred<[NN_Elementwise]>.all> {
  let summary = "whether x is infinite, as i1";
  let arguments = (ins NN_Tensor:$x, DefaultValuedAttr<BoolAttr, "true">:$positive,
                       DefaultValuedAttr<BoolAttr, "true">:$negative);
  let results = (outs NN_Tensor:$y);
}
def NN_SelectOp : NN_Op<"select", NN_Differentiable<[NN_Elementwise,
    AllTypesMatch<["a", "b", "y"]>]>.all> {
  let summary = "condition ? a : b; the gradient selects too, it never multiplies";
  let arguments = (ins NN_Tensor:$condition, NN_Tensor:$a, NN_Tensor:$b);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_CastOp : NN_Op<"cast", NN_Differentiable<[NN_Elementwise,
    SameOperandsAndResultShape]>.all> {
  let summary = "element type conversion; float to integer truncates, to i1: x != 0";
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
}

//===----------------------------------------------------------------------===//
// Sources (Source.cpp)
//===----------------------------------------------------------------------===//

def NN_ConstantOp : NN_Op<"constant", [ConstantLike, AllTypesMatch<["value", "y"]>]> {
  let summary = "a tensor known at compile time";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs NN_Tensor:$y);
  let builders = [OpBuilder<(ins "::mlir::ElementsAttr":$value),
    [{ build($_builder, $_state, value.getType(), value); }]>];
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
}
def NN_IotaOp : NN_Op<"iota", [NN_Elementwise]> {
  let summary = "the index along `axis`, of an integer or float type";
  let arguments = (ins I64Attr:$axis);
  let results = (outs NN_Tensor:$y);
}

def NN_CounterOp : NN_Op<"counter"> {
  let summary = "a number of the run: seed, step (negative outside training) or microbatch";
  let arguments = (ins StrAttr:$name);
  let results = (outs NN_Tensor:$y);
  let assemblyFormat = "$name attr-dict `:` type($y)";
  let hasVerifier = 1;
}
def NN_HashOp : NN_Op<"hash", [SameOperandsAndResultType, NN_Elementwise]> {
  let summary = "64 random bits: number x of the stream `key` (SplitMix64), all i64";
  let arguments = (ins NN_Tensor:$x, NN_Tensor:$key);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}

def NN_ParameterOp : Op<NN_Dialect, "parameter", [Symbol]> {
  let summary = "a tensor of the model file, by reference";
  let description = [{
    `role`: "weight" trains, "frozen" does not, "state" is a running statistic
    that training updates without a gradient, "constant" was folded at import.
    The bytes are [offset, offset + length) of `file` (an index into the module's
    `nn.files`), little endian, row-major; or `value`, for what folding made.
    `stored` is the element type of those bytes where it is another: a trained
    weight is f32 in the program, whatever the file has.
    `reason` says in words why it trains or does not.

    ```mlir
    nn.parameter @"fc.weight" : tensor<10x84xf32>
        {role = "weight", file = 0 : i64, offset = 64 : i64, length = 3360 : i64}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, StrAttr:$role,
      OptionalAttr<I64Attr>:$file, OptionalAttr<I64Attr>:$offset,
      OptionalAttr<I64Attr>:$length, OptionalAttr<TypeAttr>:$stored,
      OptionalAttr<ElementsAttr>:$value,
      OptionalAttr<StrAttr>:$reason);
  let assemblyFormat = "$sym_name `:` $type attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() {
      return ::llvm::cast<::mlir::RankedTensorType>(getType());
    }
    bool isTrained() { return getRole() == "weight"; }
  }];
}
def NN_WeightOp : NN_Op<"weight", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "reads an nn.parameter; each op is one use with a gradient of its own";
  let description = [{
    The result has the parameter's type; of a trained one it may be bf16, which
    is the weight rounded (`pipe-round-weights`).
  }];
  let arguments = (ins FlatSymbolRefAttr:$parameter);
  let results = (outs NN_Tensor:$y);
  let assemblyFormat = "$parameter attr-dict `:` type($y)";
}
def NN_TrackOp : Op<NN_Dialect, "track", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "running = (1 - momentum) * running + momentum * x, once a microbatch";
  let description = [{
    Applied after the step's last forward, in ascending order of the microbatches,
    whichever rank computed `x`. `momentum` is PyTorch's (ONNX's is 1 minus it).
  }];
  let arguments = (ins NN_Tensor:$x, FlatSymbolRefAttr:$parameter, F64Attr:$momentum);
  let assemblyFormat = "$x `into` $parameter attr-dict `:` type($x)";
}

//===----------------------------------------------------------------------===//
// Shape (Shape.cpp)
//===----------------------------------------------------------------------===//

def NN_BroadcastOp : NN_Op<"broadcast", NN_Differentiable<[NN_View]>.all> {
  let summary = "repeats dimensions of size 1; same rank on both sides";
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_ReshapeOp : NN_Op<"reshape", NN_Differentiable<[NN_View]>.all> {
  let summary = "same elements in row-major order, another shape";
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
  let hasFolder = 1;
}
def NN_TransposeOp : NN_Op<"transpose", NN_Differentiable<NN_Inferred<[NN_View]>.all>.all> {
  let summary = "y.shape[i] = x.shape[permutation[i]]";
  let arguments = (ins NN_Tensor:$x, DenseI64ArrayAttr:$permutation);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
  let hasFolder = 1;
}
def NN_SliceOp : NN_Op<"slice", NN_Differentiable<[NN_View]>.all> {
  let summary = "y[i] = x[starts + i * strides]; strides may be negative";
  let arguments = (ins NN_Tensor:$x, DenseI64ArrayAttr:$starts, DenseI64ArrayAttr:$strides);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_PadOp : NN_Op<"pad", NN_Differentiable<NN_Inferred<>.all>.all> {
  let summary = "puts `low` elements of `value` before, `high` after, `interior` between elements";
  let description = "Amounts are not negative. Its gradient is a slice, and the other way round.";
  let arguments = (ins NN_Tensor:$x, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high,
      DenseI64ArrayAttr:$interior, DefaultValuedAttr<F64Attr, "0.0">:$value);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_ReverseOp : NN_Op<"reverse", NN_Differentiable<NN_Inferred<>.all>.all> {
  let summary = "reverses the order along `axes`";
  let arguments = (ins NN_Tensor:$x, DenseI64ArrayAttr:$axes);
  let results = (outs NN_Tensor:$y);
}
def NN_ConcatOp : NN_Op<"concat", NN_Differentiable<NN_Inferred<>.all>.all> {
  let summary = "joins along `axis`";
  let arguments = (ins Variadic<NN_Tensor>:$inputs, I64Attr:$axis);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Indexing (Indexing.cpp)
//===----------------------------------------------------------------------===//

def NN_GatherOp : NN_Op<"gather", NN_Differentiable<NN_Inferred<>.all>.all> {
  let summary = "x.shape = outer ++ [n] ++ inner -> outer ++ indices.shape ++ inner";
  let description = "Negative indices count from the end. ONNX Gather.";
  let arguments = (ins NN_Tensor:$x, NN_Tensor:$indices, I64Attr:$axis);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_ScatterAddOp : NN_Op<"scatter_add", NN_Differentiable<>.all> {
  let summary = "the transpose of gather: adds slices of `updates` into zeros, in index order";
  let arguments = (ins NN_Tensor:$indices, NN_Tensor:$updates, I64Attr:$axis);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_CumsumOp : NN_Op<"cumsum", NN_Differentiable<[SameOperandsAndResultType]>.all> {
  let summary = "running sum along `axis`";
  let arguments = (ins NN_Tensor:$x, I64Attr:$axis, UnitAttr:$exclusive, UnitAttr:$reverse);
  let results = (outs NN_Tensor:$y);
}

//===----------------------------------------------------------------------===//
// Reduction and normalization (Reduce.cpp)
//===----------------------------------------------------------------------===//

def NN_ReduceOp : NN_Op<"reduce", NN_Differentiable<NN_Inferred<>.all>.all> {
  let summary = "reduces `axes` to size 1; kind: sum max min prod";
  let description = "An empty range gives 0, -inf, +inf, 1. Max and min share the gradient among ties.";
  let arguments = (ins NN_Tensor:$x, StrAttr:$kind, DenseI64ArrayAttr:$axes);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_SoftmaxOp : NN_Op<"softmax", NN_Differentiable<[SameOperandsAndResultType]>.all> {
  let summary = "exp(x - max) / sum over the last dimension";
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
}

//===----------------------------------------------------------------------===//
// Contractions (Linear.cpp, Conv.cpp) and pooling (Pool.cpp)
//===----------------------------------------------------------------------===//

class NN_Contraction<list<Trait> traits = []> {
  list<Trait> all = !listconcat(traits, [
    DeclareOpInterfaceMethods<NN_CostInterface, ["flops", "isContraction"]>]);
}

def NN_MatmulOp : Op<NN_Dialect, "matmul", NN_Contraction<NN_Differentiable<NN_Inferred<[Pure]>.all>.all>.all> {
  let summary = "op(a) x op(b): [batch..., m, k] x [batch..., k, n], equal batch dimensions";
  let description = [{
    Products of f16 and bf16 are added in f32 and rounded once; with `wide` not
    at all: the result is f32.
  }];
  let arguments = (ins NN_Tensor:$a, NN_Tensor:$b, UnitAttr:$transpose_a, UnitAttr:$transpose_b,
                       UnitAttr:$wide);
  let results = (outs NN_Tensor:$y);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

/// Spatial attributes have one entry a spatial dimension; x is [n, c, spatial...],
/// w [o, c/groups, kernel...], y [n, o, spatial...].
class NN_ConvBase<string mnemonic, list<Trait> traits> : Op<NN_Dialect, mnemonic,
    NN_Contraction<!listconcat([Pure], traits)>.all> {
  dag spatial = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
      DenseI64ArrayAttr:$pads_low, DenseI64ArrayAttr:$pads_high, I64Attr:$groups);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def NN_ConvOp : NN_ConvBase<"conv", NN_Differentiable<NN_Inferred<>.all>.all> {
  let summary = "convolution (cross-correlation)";
  let arguments = !con((ins NN_Tensor:$x, NN_Tensor:$w), spatial);
  let results = (outs NN_Tensor:$y);
  let hasVerifier = 1;
}
def NN_ConvGradInputOp : NN_ConvBase<"conv_grad_input", NN_Differentiable<>.all> {
  let summary = "dx of nn.conv; also a transposed convolution";
  let arguments = !con((ins NN_Tensor:$dy, NN_Tensor:$w), spatial);
  let results = (outs NN_Tensor:$dx);
}
def NN_ConvGradWeightOp : NN_ConvBase<"conv_grad_weight", []> {
  let summary = "dw of nn.conv";
  let arguments = !con((ins NN_Tensor:$x, NN_Tensor:$dy), spatial);
  let results = (outs NN_Tensor:$dw);
}

class NN_PoolBase<string mnemonic, list<Trait> traits> : NN_Op<mnemonic, traits> {
  dag window = (ins DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides,
      DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_low, DenseI64ArrayAttr:$pads_high);
}
def NN_MaxPoolOp : NN_PoolBase<"max_pool", NN_Differentiable<>.all> {
  let summary = "largest of each window (first among equals), and its index in the plane as i32";
  let arguments = !con((ins NN_Tensor:$x), window);
  let results = (outs NN_Tensor:$y, NN_Tensor:$index);
}
def NN_MaxPoolGradOp : NN_PoolBase<"max_pool_grad", []> {
  let summary = "adds each dy to the element that index names";
  let arguments = !con((ins NN_Tensor:$dy, NN_Tensor:$index), window);
  let results = (outs NN_Tensor:$dx);
}
def NN_AvgPoolOp : NN_PoolBase<"avg_pool", NN_Differentiable<>.all> {
  let summary = "mean of each window; padding counts when count_pad is set";
  let arguments = !con((ins NN_Tensor:$x), window, (ins UnitAttr:$count_pad));
  let results = (outs NN_Tensor:$y);
}
def NN_AvgPoolGradOp : NN_PoolBase<"avg_pool_grad", []> {
  let summary = "dx of nn.avg_pool";
  let arguments = !con((ins NN_Tensor:$dy), window, (ins UnitAttr:$count_pad));
  let results = (outs NN_Tensor:$dx);
}

//===----------------------------------------------------------------------===//
// Attention as one op (Attention.cpp)
//===----------------------------------------------------------------------===//

class NN_AttentionBase<string mnemonic, list<Trait> traits> : Op<NN_Dialect, mnemonic,
    NN_Contraction<!listconcat([Pure], traits)>.all> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def NN_AttentionOp : NN_AttentionBase<"attention", NN_Differentiable<NN_Inferred<>.all>.all> {
  let summary = "softmax(scale * q k' + bias) v, whose scores are stored nowhere";
  let description = [{
    q [batch..., t, d], k and v [batch..., s, d], bias [batch..., t, s] in f32,
    y of q's type. `causal`: row i sees keys up to i, and s is t. `tops` and
    `shares` [batch..., t, 1] in f32 are each row's largest score and the
    reciprocal of its sum of exp(score - top), from which the gradient computes
    the weights again: two numbers, as log sum exp could not tell a row whose
    scores are all near -1e9. The bias is given no gradient. With `replaces` a
    bias of f32's lowest number stands for the score itself, which then has no
    gradient. A row without any score is NaN; with `zero_rows` it is 0.
  }];
  let arguments = (ins NN_Tensor:$q, NN_Tensor:$k, NN_Tensor:$v, Optional<NN_Tensor>:$bias,
                       F64Attr:$scale, UnitAttr:$causal, UnitAttr:$zero_rows,
                       UnitAttr:$replaces);
  let results = (outs NN_Tensor:$y, NN_Tensor:$tops, NN_Tensor:$shares);
  let hasVerifier = 1;
}
/// `delta` [batch..., t, 1] in f32 is the row sum of dy * y.
class NN_AttentionGradBase<string mnemonic> : NN_AttentionBase<mnemonic, []> {
  let arguments = (ins NN_Tensor:$q, NN_Tensor:$k, NN_Tensor:$v, NN_Tensor:$dy,
                       NN_Tensor:$tops, NN_Tensor:$shares, NN_Tensor:$delta,
                       Optional<NN_Tensor>:$bias, F64Attr:$scale, UnitAttr:$causal,
                       UnitAttr:$zero_rows, UnitAttr:$replaces);
}
def NN_AttentionGradQueryOp : NN_AttentionGradBase<"attention_grad_query"> {
  let summary = "dq of nn.attention";
  let results = (outs NN_Tensor:$dq);
}
def NN_AttentionGradKeysOp : NN_AttentionGradBase<"attention_grad_keys"> {
  let summary = "dk and dv of nn.attention";
  let results = (outs NN_Tensor:$dk, NN_Tensor:$dv);
}

#endif
