//===- Elementwise.cpp - all knowledge of the elementwise ops -------------===//
//
// Gradients follow PyTorch where the function has a kink: relu, abs at 0, ties
// of max and min, pow at 0.
//
//===----------------------------------------------------------------------===//
#include "dialects/nn/Build.h"

#include <cmath>

using namespace mlir;
using namespace pipec::nn;

using Grads = SmallVectorImpl<Value>;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

static LogicalResult inferBool(ValueRange operands,
                               SmallVectorImpl<Type> &types) {
  auto type = cast<RankedTensorType>(operands[0].getType());
  types.push_back(type.clone(IntegerType::get(type.getContext(), 1)));
  return success();
}

#define INFER_BOOL(OP)                                                         \
  LogicalResult OP::inferReturnTypes(MLIRContext *, std::optional<Location>,   \
                                     ValueRange operands, DictionaryAttr,      \
                                     mlir::OpaqueProperties, RegionRange,      \
                                     SmallVectorImpl<Type> &types) {           \
    return inferBool(operands, types);                                         \
  }
INFER_BOOL(CompareOp)
INFER_BOOL(IsNanOp)
INFER_BOOL(IsInfOp)

LogicalResult CompareOp::verify() {
  if (!llvm::is_contained({"eq", "ne", "lt", "le", "gt", "ge"}, getPredicate()))
    return emitOpError("has an unknown predicate '") << getPredicate() << "'";
  return success();
}

LogicalResult SelectOp::verify() {
  auto condition = tensorType(getCondition());
  if (!condition.getElementType().isInteger(1) ||
      condition.getShape() != tensorType(getA()).getShape())
    return emitOpError("needs an i1 condition of the shape of its values");
  return success();
}

//===----------------------------------------------------------------------===//
// Unary gradients: d is the gradient of y
//===----------------------------------------------------------------------===//

/// 0 where x is 0: so PyTorch has it for norms and deviations, which exporters
/// write as roots of sums; a product of infinity and the sum's 0 would be NaN.
static Value sqrtGradient(NNBuilder &b, Value d, Value y) {
  Value zero = splatLike(b, y, 0);
  return select(b, compare(b, "eq", y, zero), zero,
                div(b, d, mulScalar(b, y, 2)));
}

#define UNARY_GRADIENT(OP, EXPRESSION)                                         \
  void OP::backward(NNBuilder &b, ValueRange grads, const llvm::BitVector &,   \
                    Grads &out) {                                              \
    [[maybe_unused]] Value x = getX(), y = getY(), d = grads[0];               \
    out[0] = EXPRESSION;                                                       \
  }

UNARY_GRADIENT(NegOp, neg(b, d))
UNARY_GRADIENT(AbsOp, mul(b, d, SignOp::create(b, x)))
UNARY_GRADIENT(ExpOp, mul(b, d, y))
UNARY_GRADIENT(LogOp, div(b, d, x))
UNARY_GRADIENT(Log1pOp, div(b, d, addScalar(b, x, 1)))
UNARY_GRADIENT(SqrtOp, sqrtGradient(b, d, y))
UNARY_GRADIENT(RsqrtOp, mul(b, mulScalar(b, d, -0.5), mul(b, y, mul(b, y, y))))
UNARY_GRADIENT(ReciprocalOp, mul(b, neg(b, d), mul(b, y, y)))
UNARY_GRADIENT(TanhOp, mul(b, d, sub(b, splatLike(b, y, 1), mul(b, y, y))))
UNARY_GRADIENT(ErfOp, mul(b, mulScalar(b, d, 2 / std::sqrt(M_PI)),
                          exp(b, neg(b, mul(b, x, x)))))
UNARY_GRADIENT(SigmoidOp, mul(b, d, mul(b, y, sub(b, splatLike(b, y, 1), y))))
UNARY_GRADIENT(ReluOp,
               selectOrZero(b, compare(b, "gt", x, splatLike(b, x, 0)), d))
UNARY_GRADIENT(SinOp, mul(b, d, CosOp::create(b, x)))
UNARY_GRADIENT(CosOp, neg(b, mul(b, d, SinOp::create(b, x))))
// Zero almost everywhere: no gradient value at all.
UNARY_GRADIENT(FloorOp, Value())
UNARY_GRADIENT(CeilOp, Value())
UNARY_GRADIENT(RoundOp, Value())
UNARY_GRADIENT(SignOp, Value())
UNARY_GRADIENT(StopGradientOp, Value())

static bool isOfWeight(Value v) {
  while (Operation *def = v.getDefiningOp()) {
    if (isa<WeightOp>(def))
      return true;
    if (!def->hasTrait<View>())
      return false;
    v = def->getOperand(0);
  }
  return false;
}

/// A narrow gradient before it is rounded, or null.
static Value unrounded(NNBuilder &b, Value gradient) {
  auto rounding = gradient.getDefiningOp<CastOp>();
  if (rounding && tensorType(rounding.getX()).getElementType().isF32())
    return rounding.getX();
  auto product = gradient.getDefiningOp<MatmulOp>();
  if (!product && !gradient.getDefiningOp<ConvGradWeightOp>())
    return {};
  Operation *copy = b.clone(*gradient.getDefiningOp());
  if (product)
    cast<MatmulOp>(copy).setWide(true);
  Value result = copy->getResult(0);
  result.setType(tensorType(result).clone(b.getF32Type()));
  return result;
}

/// A narrow gradient in f32: contributions are added there, not in the narrow
/// type, and those to a weight, which microbatches sum, are not rounded at all.
static Value widened(NNBuilder &b, Value gradient, bool ofWeight) {
  if (auto sum = gradient.getDefiningOp<AddOp>())
    return add(b, widened(b, sum.getA(), ofWeight),
               widened(b, sum.getB(), ofWeight));
  if (Value exact = ofWeight ? unrounded(b, gradient) : Value())
    return exact;
  return pipec::nn::cast(b, gradient, b.getF32Type());
}

void CastOp::backward(NNBuilder &b, ValueRange grads, const llvm::BitVector &,
                      Grads &out) {
  if (!isFloat(getX()) || !isFloat(getY()))
    return;
  Type element = tensorType(getX()).getElementType();
  out[0] = isNarrow(getY()) && element.isF32()
               ? widened(b, grads[0], isOfWeight(getX()))
               : nn::cast(b, grads[0], element);
}

//===----------------------------------------------------------------------===//
// Binary gradients
//===----------------------------------------------------------------------===//

#define BINARY_GRADIENT(OP, A_EXPRESSION, B_EXPRESSION)                        \
  void OP::backward(NNBuilder &b, ValueRange grads,                            \
                    const llvm::BitVector &needed, Grads &out) {               \
    [[maybe_unused]] Value p = getA(), q = getB(), y = getY(), d = grads[0];   \
    if (needed[0])                                                             \
      out[0] = A_EXPRESSION;                                                   \
    if (needed[1])                                                             \
      out[1] = B_EXPRESSION;                                                   \
  }

/// d where x is the larger (predicate gt) or smaller (lt) one, d/2 at a tie.
static Value extremeGradient(NNBuilder &b, StringRef predicate, Value d,
                             Value x, Value other) {
  Value tie = select(b, compare(b, "eq", x, other), mulScalar(b, d, 0.5),
                     splatLike(b, d, 0));
  return select(b, compare(b, predicate, x, other), d, tie);
}

/// y * log(a) * d; 0 where a is 0 and b >= 0, as in PyTorch.
static Value powExponentGradient(NNBuilder &b, Value d, Value p, Value q,
                                 Value y) {
  Value zero = splatLike(b, p, 0);
  Value guarded =
      AndOp::create(b, compare(b, "eq", p, zero), compare(b, "ge", q, zero));
  return select(b, guarded, zero, mul(b, d, mul(b, y, log(b, p))));
}

/// d * b * a^(b-1); 0 where b is 0, also for a = 0.
static Value powBaseGradient(NNBuilder &b, Value d, Value p, Value q) {
  Value zero = splatLike(b, p, 0);
  Value power = PowOp::create(b, p, addScalar(b, q, -1));
  return select(b, compare(b, "eq", q, zero), zero,
                mul(b, d, mul(b, q, power)));
}

/// a - fmod(a, b) is a whole number of b: that number, with its sign changed,
/// is what b counts for. Rounding takes away what the division adds.
static Value remainderGradient(NNBuilder &b, Value d, Value p, Value q,
                               Value y) {
  Value whole = RoundOp::create(b, div(b, sub(b, p, y), q));
  return neg(b, mul(b, d, whole));
}

BINARY_GRADIENT(AddOp, d, d)
BINARY_GRADIENT(SubOp, d, neg(b, d))
BINARY_GRADIENT(MulOp, mul(b, d, q), mul(b, d, p))
BINARY_GRADIENT(DivOp, div(b, d, q), neg(b, div(b, mul(b, d, y), q)))
BINARY_GRADIENT(PowOp, powBaseGradient(b, d, p, q),
                powExponentGradient(b, d, p, q, y))
BINARY_GRADIENT(MaxOp, extremeGradient(b, "gt", d, p, q),
                extremeGradient(b, "gt", d, q, p))
BINARY_GRADIENT(MinOp, extremeGradient(b, "lt", d, p, q),
                extremeGradient(b, "lt", d, q, p))

BINARY_GRADIENT(ModOp, d, remainderGradient(b, d, p, q, y))

void SelectOp::backward(NNBuilder &b, ValueRange grads,
                        const llvm::BitVector &needed, Grads &out) {
  if (needed[1])
    out[1] = selectOrZero(b, getCondition(), grads[0]);
  if (needed[2])
    out[2] = select(b, getCondition(), splatLike(b, grads[0], 0), grads[0]);
}
