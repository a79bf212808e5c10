//===- EmitElementwise.cpp - one nn op at one point -----------------------===//
#include "compiler/target/fusion/EmitElementwise.h"
#include "compiler/target/fusion/Math.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Rough.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using arith::CmpFPredicate;
using arith::CmpIPredicate;

namespace {
/// The code of one op. `x`, `y`, `z` are its operands.
class OpEmitter {
public:
  OpEmitter(ImplicitLocOpBuilder &b, const Machine &machine,
            ArrayRef<Value> operands)
      : b(b), machine(machine), math(b, machine),
        x(operands.size() > 0 ? operands[0] : Value()),
        y(operands.size() > 1 ? operands[1] : Value()),
        z(operands.size() > 2 ? operands[2] : Value()) {
    type = x.getType();
    isFloat = isa<FloatType>(getElementTypeOrSelf(type));
  }

  Value emit(Operation *op) {
    return llvm::TypeSwitch<Operation *, Value>(op)
        .Case<nn::NegOp>([&](auto) { return negate(); })
        .Case<nn::AbsOp>([&](auto) {
          return isFloat ? make<math::AbsFOp>(x) : make<math::AbsIOp>(x);
        })
        .Case<nn::ExpOp>(
            [&](auto) { return isRough(op) ? math.roughExp(x) : math.exp(x); })
        .Case<nn::LogOp>([&](auto) { return math.log(x); })
        .Case<nn::Log1pOp>([&](auto) { return math.log1p(x); })
        .Case<nn::TanhOp>([&](auto) {
          return isRough(op) ? math.roughTanh(x) : math.tanh(x);
        })
        .Case<nn::ErfOp>([&](auto) { return math.erf(x); })
        .Case<nn::SigmoidOp>([&](auto) {
          return isRough(op) ? math.roughSigmoid(x) : math.sigmoid(x);
        })
        .Case<nn::SinOp>([&](auto) { return math.library("sin", x); })
        .Case<nn::CosOp>([&](auto) { return math.library("cos", x); })
        .Case<nn::SqrtOp>([&](auto) { return make<math::SqrtOp>(x); })
        .Case<nn::RsqrtOp>([&](auto) {
          return make<arith::DivFOp>(number(1), make<math::SqrtOp>(x));
        })
        .Case<nn::ReciprocalOp>(
            [&](auto) { return make<arith::DivFOp>(number(1), x); })
        .Case<nn::ReluOp>([&](auto) { return relu(); })
        .Case<nn::FloorOp>([&](auto) { return rounded<math::FloorOp>(); })
        .Case<nn::CeilOp>([&](auto) { return rounded<math::CeilOp>(); })
        .Case<nn::RoundOp>([&](auto) { return rounded<math::RoundEvenOp>(); })
        .Case<nn::SignOp>([&](auto) { return sign(); })
        .Case<nn::NotOp>(
            [&](auto) { return make<arith::XOrIOp>(x, number(1)); })
        .Case<nn::AddOp>(
            [&](auto) { return arithmetic<arith::AddFOp, arith::AddIOp>(); })
        .Case<nn::SubOp>(
            [&](auto) { return arithmetic<arith::SubFOp, arith::SubIOp>(); })
        .Case<nn::MulOp>(
            [&](auto) { return arithmetic<arith::MulFOp, arith::MulIOp>(); })
        .Case<nn::DivOp>([&](auto) { return divide(); })
        .Case<nn::PowOp>([&](nn::PowOp pow) { return power(pow); })
        .Case<nn::MaxOp>([&](auto) { return extreme(true); })
        .Case<nn::MinOp>([&](auto) { return extreme(false); })
        .Case<nn::ModOp>([&](nn::ModOp mod) { return modulo(mod.getFmod()); })
        .Case<nn::AndOp>([&](auto) { return make<arith::AndIOp>(x, y); })
        .Case<nn::OrOp>([&](auto) { return make<arith::OrIOp>(x, y); })
        .Case<nn::XorOp>([&](auto) { return make<arith::XOrIOp>(x, y); })
        .Case<nn::HashOp>([&](auto) { return splitMix(); })
        .Case<nn::CompareOp>([&](nn::CompareOp compare) {
          return this->compare(compare.getPredicate());
        })
        .Case<nn::IsNanOp>([&](auto) { return cmpF(CmpFPredicate::UNO, x, x); })
        .Case<nn::IsInfOp>([&](nn::IsInfOp op) { return isInfinite(op); })
        .Case<nn::SelectOp>(
            [&](auto) { return make<arith::SelectOp>(x, y, z); })
        .Case<nn::CastOp>([&](nn::CastOp cast) {
          return this->cast(nn::tensorType(cast.getX()).getElementType(),
                            nn::tensorType(cast.getY()).getElementType());
        })
        .Default([](Operation *) { return Value(); });
  }

  Value extreme(bool larger) {
    if (!isFloat) {
      if (getElementTypeOrSelf(type).isInteger(1))
        return larger ? make<arith::OrIOp>(x, y) : make<arith::AndIOp>(x, y);
      return larger ? make<arith::MaxSIOp>(x, y) : make<arith::MinSIOp>(x, y);
    }
    // A device has one instruction for it, which tells zeros apart, too.
    if (machine.nvptx && getElementTypeOrSelf(type).isF32())
      return larger ? make<arith::MaximumFOp>(x, y)
                    : make<arith::MinimumFOp>(x, y);
    // NaN in y falls through the ordered comparison, NaN in x is put back.
    Value first = cmpF(larger ? CmpFPredicate::OGT : CmpFPredicate::OLT, x, y);
    return select(cmpF(CmpFPredicate::UNO, x, x), x, select(first, x, y));
  }

  template <typename Float, typename Int> Value arithmetic() {
    return isFloat ? make<Float>(x, y) : make<Int>(x, y);
  }

private:
  bool isRough(Operation *op) {
    return machine.nvptx && op->hasAttr(nn::kRoughAttr) &&
           getElementTypeOrSelf(type).isF32();
  }

  template <typename Op, typename... Args> Value make(Args &&...args) {
    return Op::create(b, std::forward<Args>(args)...)->getResult(0);
  }
  Value cmpF(CmpFPredicate predicate, Value left, Value right) {
    return make<arith::CmpFOp>(predicate, left, right);
  }
  Value cmpI(CmpIPredicate predicate, Value left, Value right) {
    return make<arith::CmpIOp>(predicate, left, right);
  }
  Value select(Value condition, Value then, Value otherwise) {
    return make<arith::SelectOp>(condition, then, otherwise);
  }
  Value number(double value) {
    return isFloat ? math.constant(type, value)
                   : math.integer(type, static_cast<int64_t>(value));
  }

  Value negate() {
    return isFloat ? make<arith::NegFOp>(x) : make<arith::SubIOp>(number(0), x);
  }
  template <typename Op> Value rounded() { return isFloat ? make<Op>(x) : x; }

  Value relu() {
    if (!isFloat)
      return make<arith::MaxSIOp>(x, number(0));
    return select(cmpF(CmpFPredicate::UGT, x, number(0)), x, number(0));
  }

  Value sign() {
    if (!isFloat)
      return make<arith::MaxSIOp>(make<arith::MinSIOp>(x, number(1)),
                                  number(-1));
    Value zeroOrNan = select(cmpF(CmpFPredicate::UNO, x, x), x, number(0));
    Value negative =
        select(cmpF(CmpFPredicate::OLT, x, number(0)), number(-1), zeroOrNan);
    return select(cmpF(CmpFPredicate::OGT, x, number(0)), number(1), negative);
  }

  /// Integer division never traps: by zero it gives zero, and the smallest
  /// number over -1 wraps.
  Value divide() {
    if (isFloat)
      return make<arith::DivFOp>(x, y);
    Value quotient = make<arith::DivSIOp>(x, safeDivisor());
    Value negative = make<arith::SubIOp>(number(0), x);
    quotient =
        select(cmpI(CmpIPredicate::eq, y, number(-1)), negative, quotient);
    return select(cmpI(CmpIPredicate::eq, y, number(0)), number(0), quotient);
  }
  Value safeDivisor() {
    Value unsafe = make<arith::OrIOp>(cmpI(CmpIPredicate::eq, y, number(0)),
                                      cmpI(CmpIPredicate::eq, y, number(-1)));
    return select(unsafe, number(1), y);
  }

  Value modulo(bool signOfDividend) {
    Value rest, wrong;
    if (isFloat) {
      rest = math.library("fmod", {x, y});
      if (signOfDividend)
        return rest;
      wrong = make<arith::AndIOp>(
          cmpF(CmpFPredicate::UNE, rest, number(0)),
          make<arith::XOrIOp>(cmpF(CmpFPredicate::OLT, rest, number(0)),
                              cmpF(CmpFPredicate::OLT, y, number(0))));
      return select(wrong, make<arith::AddFOp>(rest, y), rest);
    }
    rest = make<arith::RemSIOp>(x, safeDivisor());
    if (signOfDividend)
      return rest;
    wrong = make<arith::AndIOp>(
        cmpI(CmpIPredicate::ne, rest, number(0)),
        cmpI(CmpIPredicate::slt, make<arith::XOrIOp>(rest, y), number(0)));
    return select(wrong, make<arith::AddIOp>(rest, y), rest);
  }

  /// Number x of the stream y: SplitMix64.
  Value splitMix() {
    auto word = [&](uint64_t bits) {
      return math.integer(type, static_cast<int64_t>(bits));
    };
    auto fold = [&](Value z, int shift) {
      return make<arith::XOrIOp>(z, make<arith::ShRUIOp>(z, word(shift)));
    };
    Value z = make<arith::MulIOp>(make<arith::AddIOp>(x, number(1)),
                                  word(0x9e3779b97f4a7c15u));
    z = make<arith::AddIOp>(z, y);
    z = make<arith::MulIOp>(fold(z, 30), word(0xbf58476d1ce4e5b9u));
    z = make<arith::MulIOp>(fold(z, 27), word(0x94d049bb133111ebu));
    return fold(z, 31);
  }

  /// Common exponents are products, as everywhere; the rest is the C library's.
  Value power(nn::PowOp op) {
    std::optional<double> exponent;
    if (auto constant = op.getB().getDefiningOp<nn::ConstantOp>())
      if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue())) {
        if (isFloat)
          exponent = splat.getSplatValue<APFloat>().convertToDouble();
        else
          exponent = splat.getSplatValue<APInt>().getSExtValue();
      }
    if (exponent == 1.0)
      return x;
    if (exponent == 2.0 || exponent == 3.0) {
      auto times = [&](Value p, Value q) {
        return isFloat ? make<arith::MulFOp>(p, q) : make<arith::MulIOp>(p, q);
      };
      Value square = times(x, x);
      return exponent == 2.0 ? square : times(square, x);
    }
    if (isFloat && exponent == 0.5)
      return make<math::SqrtOp>(x);
    if (isFloat && exponent == -0.5)
      return make<arith::DivFOp>(number(1), make<math::SqrtOp>(x));
    if (isFloat && exponent == -1.0)
      return make<arith::DivFOp>(number(1), x);
    if (isFloat && exponent == -2.0)
      return make<arith::DivFOp>(number(1), make<arith::MulFOp>(x, x));
    if (isFloat)
      return math.library("pow", {x, y});
    Type doubles = withElement(type, b.getF64Type());
    Value result = math.library("pow", {make<arith::SIToFPOp>(doubles, x),
                                        make<arith::SIToFPOp>(doubles, y)});
    return saturated(result, type);
  }

  Value compare(StringRef predicate) {
    if (isFloat)
      return cmpF(llvm::StringSwitch<CmpFPredicate>(predicate)
                      .Case("eq", CmpFPredicate::OEQ)
                      .Case("ne", CmpFPredicate::UNE)
                      .Case("lt", CmpFPredicate::OLT)
                      .Case("le", CmpFPredicate::OLE)
                      .Case("gt", CmpFPredicate::OGT)
                      .Default(CmpFPredicate::OGE),
                  x, y);
    bool isBool = getElementTypeOrSelf(type).isInteger(1);
    return cmpI(
        llvm::StringSwitch<CmpIPredicate>(predicate)
            .Case("eq", CmpIPredicate::eq)
            .Case("ne", CmpIPredicate::ne)
            .Case("lt", isBool ? CmpIPredicate::ult : CmpIPredicate::slt)
            .Case("le", isBool ? CmpIPredicate::ule : CmpIPredicate::sle)
            .Case("gt", isBool ? CmpIPredicate::ugt : CmpIPredicate::sgt)
            .Default(isBool ? CmpIPredicate::uge : CmpIPredicate::sge),
        x, y);
  }

  Value isInfinite(nn::IsInfOp op) {
    Value positive = cmpF(CmpFPredicate::OEQ, x, number(INFINITY));
    Value negative = cmpF(CmpFPredicate::OEQ, x, number(-INFINITY));
    if (op.getPositive() && op.getNegative())
      return make<arith::OrIOp>(positive, negative);
    if (op.getPositive())
      return positive;
    if (op.getNegative())
      return negative;
    return math.integer(withElement(type, b.getI1Type()), 0);
  }

  /// Conversion to integers of whatever is out of range is defined: the
  /// nearest.
  Value saturated(Value value, Type to) {
    return LLVM::CallIntrinsicOp::create(
               b, to, b.getStringAttr("llvm.fptosi.sat"), ValueRange{value})
        ->getResult(0);
  }

  /// Unsigned integers are cast to wider ones and back, no more.
  Value cast(Type source, Type element) {
    if (element.isUnsignedInteger())
      element = b.getIntegerType(element.getIntOrFloatBitWidth());
    Type from = getElementTypeOrSelf(type), to = withElement(type, element);
    if (from == element)
      return x;
    if (element.isInteger(1))
      return isFloat ? cmpF(CmpFPredicate::UNE, x, number(0))
                     : cmpI(CmpIPredicate::ne, x, number(0));
    if (isFloat && isa<FloatType>(element))
      return convertFloat(b, machine, x, element);
    if (isFloat)
      return saturated(x, to);
    if (isa<FloatType>(element)) {
      if (from.isInteger(1))
        return select(x, math.constant(to, 1), math.constant(to, 0));
      if (!isNarrow(element))
        return make<arith::SIToFPOp>(to, x);
      Type wide = withElement(type, b.getF64Type());
      return convertFloat(b, machine, make<arith::SIToFPOp>(wide, x), element);
    }
    if (element.getIntOrFloatBitWidth() < from.getIntOrFloatBitWidth())
      return make<arith::TruncIOp>(to, x);
    return from.isInteger(1) || source.isUnsignedInteger()
               ? make<arith::ExtUIOp>(to, x)
               : make<arith::ExtSIOp>(to, x);
  }

  ImplicitLocOpBuilder &b;
  Machine machine;
  MathEmitter math;
  Value x, y, z;
  Type type;
  bool isFloat;
};
} // namespace

Value fusion::emitElementwise(ImplicitLocOpBuilder &b, const Machine &machine,
                              Operation *op, ArrayRef<Value> operands) {
  SmallVector<Value> same(operands);
  VectorType vector;
  for (Value value : same)
    if (auto type = dyn_cast<VectorType>(value.getType()))
      vector = type;
  if (vector)
    for (Value &value : same)
      if (!isa<VectorType>(value.getType()))
        value = vector::BroadcastOp::create(b, vector.clone(value.getType()),
                                            value);
  // Narrow floats compute in f32; what they select between stays as it is.
  Type narrow;
  if (!isa<nn::SelectOp>(op))
    for (Value &value : same)
      if (Type element = getElementTypeOrSelf(value); isNarrow(element)) {
        narrow = element;
        value = widened(b, machine, value);
      }
  Value result = OpEmitter(b, machine, same).emit(op);
  if (narrow && result && !isa<nn::CastOp>(op) &&
      getElementTypeOrSelf(result).isF32())
    result = narrowed(b, machine, result, narrow);
  return result;
}

Value fusion::widened(ImplicitLocOpBuilder &b, const Machine &machine,
                      Value value) {
  return isNarrow(getElementTypeOrSelf(value))
             ? convertFloat(b, machine, value, b.getF32Type())
             : value;
}

Value fusion::narrowed(ImplicitLocOpBuilder &b, const Machine &machine,
                       Value value, Type element) {
  return convertFloat(b, machine, value, element);
}

Value fusion::emitCombine(ImplicitLocOpBuilder &b, const Machine &machine,
                          StringRef kind, Value x, Value y) {
  OpEmitter emitter(b, machine, {x, y});
  if (kind == "sum")
    return emitter.arithmetic<arith::AddFOp, arith::AddIOp>();
  if (kind == "prod")
    return emitter.arithmetic<arith::MulFOp, arith::MulIOp>();
  return emitter.extreme(kind == "max");
}

Value fusion::emitIdentity(ImplicitLocOpBuilder &b, StringRef kind, Type type) {
  MathEmitter math(b, Machine());
  Type element = getElementTypeOrSelf(type);
  if (isa<FloatType>(element))
    return math.constant(type, kind == "sum"    ? 0
                               : kind == "prod" ? 1
                               : kind == "max"  ? -INFINITY
                                                : INFINITY);
  unsigned width = element.getIntOrFloatBitWidth();
  if (kind == "sum" || kind == "prod")
    return math.integer(type, kind == "prod");
  if (width == 1)
    return math.integer(type, kind == "min");
  APInt value = kind == "max" ? APInt::getSignedMinValue(width)
                              : APInt::getSignedMaxValue(width);
  return math.integer(type, value.getSExtValue());
}
