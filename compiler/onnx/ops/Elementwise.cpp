//===- Elementwise.cpp - importers of elementwise operators ---------------===//
#include "compiler/onnx/ops/Ops.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace pipec::onnx {

//===----------------------------------------------------------------------===//
// One operand
//===----------------------------------------------------------------------===//

#define UNARY(NAME, OP)                                                        \
  void import##NAME(NodeContext &c) { c.out(c.e.unary<nn::OP>(c.in(0))); }
#define FLOAT_UNARY(NAME, OP)                                                  \
  void import##NAME(NodeContext &c) { c.out(c.e.unary<nn::OP>(c.floatIn(0))); }

UNARY(Abs, AbsOp)
UNARY(Neg, NegOp)
UNARY(Relu, ReluOp)
UNARY(Sign, SignOp)
UNARY(Not, NotOp)
FLOAT_UNARY(Ceil, CeilOp)
FLOAT_UNARY(Cos, CosOp)
FLOAT_UNARY(Erf, ErfOp)
FLOAT_UNARY(Exp, ExpOp)
FLOAT_UNARY(Floor, FloorOp)
FLOAT_UNARY(Log, LogOp)
FLOAT_UNARY(Reciprocal, ReciprocalOp)
FLOAT_UNARY(Round, RoundOp)
FLOAT_UNARY(Sigmoid, SigmoidOp)
FLOAT_UNARY(Sin, SinOp)
FLOAT_UNARY(Sqrt, SqrtOp)
FLOAT_UNARY(Tanh, TanhOp)

void importIdentity(NodeContext &c) {
  if (!c.has(0))
    c.fail("its input is missing");
  c.out(c.inputOrSequence(0));
}

/// sin(x) / cos(x)
void importTan(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.div(c.e.unary<nn::SinOp>(x), c.e.unary<nn::CosOp>(x)));
}

/// (e^x - e^-x) / 2; near zero 2t / (1 - t^2) with t = tanh(x/2), which keeps
/// the digits of small x. What a branch does not choose is computed at 0, so
/// that its gradient stays finite.
void importSinh(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0);
  const Val zero = e.splatLike(x, 0);
  const Val isNear = e.compare("lt", e.unary<nn::AbsOp>(x), 1);
  const Val t = e.unary<nn::TanhOp>(e.mul(e.select(isNear, x, zero), 0.5));
  const Val near = e.div(e.mul(t, 2), e.sub(e.splatLike(t, 1), e.mul(t, t)));
  const Val far =
      e.mul(e.sub(e.unary<nn::ExpOp>(x), e.unary<nn::ExpOp>(e.neg(x))), 0.5);
  c.out(e.select(isNear, near, far));
}

/// (e^x + e^-x) / 2
void importCosh(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.mul(
      c.e.add(c.e.unary<nn::ExpOp>(x), c.e.unary<nn::ExpOp>(c.e.neg(x))), 0.5));
}

/// log(a + sqrt(a^2 + 1)) by log1p for a = |x|, with the sign of x.
void importAsinh(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0);
  const Val negative = e.compare("lt", x, 0);
  const Val a = e.select(negative, e.neg(x), x), square = e.mul(a, a);
  const Val root = e.unary<nn::SqrtOp>(e.add(square, 1));
  // a + sqrt(a^2 + 1) - 1 = a + a^2 / (1 + sqrt(a^2 + 1))
  const Val y = e.unary<nn::Log1pOp>(e.add(a, e.div(square, e.add(root, 1))));
  c.out(e.select(negative, e.neg(y), y));
}

/// log(x + sqrt(x^2 - 1))
void importAcosh(NodeContext &c) {
  const Val &x = c.floatIn(0);
  const Val root = c.e.unary<nn::SqrtOp>(c.e.add(c.e.mul(x, x), -1));
  c.out(c.e.unary<nn::LogOp>(c.e.add(x, root)));
}

/// (log1p(x) - log1p(-x)) / 2
void importAtanh(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.mul(
      c.e.sub(c.e.unary<nn::Log1pOp>(x), c.e.unary<nn::Log1pOp>(c.e.neg(x))),
      0.5));
}

void importIsNaN(NodeContext &c) {
  c.out(c.e.apply({c.floatIn(0)}, [](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::IsNanOp::create(b, v[0]).getResult();
  }));
}

void importIsInf(NodeContext &c) {
  const bool positive = c.intAttr("detect_positive", 1) != 0;
  const bool negative = c.intAttr("detect_negative", 1) != 0;
  c.out(c.e.apply({c.floatIn(0)}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::IsInfOp::create(b, v[0], positive, negative).getResult();
  }));
}

//===----------------------------------------------------------------------===//
// Two operands and more
//===----------------------------------------------------------------------===//

#define BINARY(NAME, OP)                                                       \
  void import##NAME(NodeContext &c) {                                          \
    c.out(c.e.binary<nn::OP>(c.in(0), c.in(1)));                               \
  }
BINARY(Add, AddOp)
BINARY(Sub, SubOp)
BINARY(Mul, MulOp)
BINARY(Div, DivOp)
BINARY(And, AndOp)
BINARY(Or, OrOp)
BINARY(Xor, XorOp)
BINARY(BitwiseAnd, AndOp)
BINARY(BitwiseOr, OrOp)
BINARY(BitwiseXor, XorOp)

void importBitwiseNot(NodeContext &c) {
  c.out(c.e.binary<nn::XorOp>(c.in(0), c.e.splatLike(c.in(0), -1)));
}

/// By a constant only: a multiplication or division by a power of two.
void importBitShift(NodeContext &c) {
  const Val &x = c.in(0);
  const bool left = c.stringAttr("direction", "") == "LEFT";
  if (!left && c.stringAttr("direction", "") != "RIGHT")
    c.fail("its direction is neither LEFT nor RIGHT");
  const nn::Literal shifts = c.known(1, "shift");
  const Type element = x.getElementType();
  const unsigned width = element.getIntOrFloatBitWidth();
  // By all bits or more nothing is left but the sign.
  std::vector<int64_t> powers, whole;
  for (const int64_t s : shifts.integers()) {
    const bool far =
        s < 0 || s >= width - (element.isUnsignedInteger() || left ? 0 : 1);
    whole.push_back(!far);
    powers.push_back(
        far ? 1 : nn::wrapTo(element, static_cast<int64_t>(uint64_t(1) << s)));
  }
  Emitter &e = c.e;
  const Val factor = nn::Literal(shifts.getType(), powers);
  const Val keeps = nn::Literal(
      withElement(shifts.getType(), IntegerType::get(e.getContext(), 1)),
      whole);
  if (left || element.isUnsignedInteger()) {
    const Val y = left ? e.mul(x, factor) : e.div(x, factor);
    c.out(e.select(keeps, y, e.splatLike(y, 0)));
    return;
  }
  // Towards minus infinity: a negative x shifts as its complement does.
  const Val negative = e.compare("lt", x, 0);
  const Val flip = e.splatLike(x, -1);
  const Val y =
      e.div(e.select(negative, e.binary<nn::XorOp>(x, flip), x), factor);
  const Val kept = e.select(keeps, y, e.splatLike(y, 0));
  c.out(e.select(negative, e.binary<nn::XorOp>(kept, e.splatLike(kept, -1)),
                 kept));
}

void importMod(NodeContext &c) {
  const bool floats = c.in(0).isFloat();
  const bool fmod = c.intAttr("fmod", 0) != 0;
  Emitter::requireSameElement(c.in(0), c.in(1));
  const auto [x, y] = c.e.broadcastPair(c.in(0), c.in(1));
  const Val r = c.e.apply({x, y}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::ModOp::create(b, v[0].getType(), v[0], v[1], fmod || floats)
        .getResult();
  });
  if (!floats || fmod) {
    c.out(r);
    return;
  }
  // The sign of the divisor: one more divisor where the signs differ.
  const Val differs =
      c.e.binary<nn::XorOp>(c.e.compare("lt", r, 0), c.e.compare("lt", y, 0));
  const Val adds = c.e.binary<nn::AndOp>(differs, c.e.compare("ne", r, 0));
  c.out(c.e.select(adds, c.e.add(r, y), r));
}

/// Folds a binary op over all inputs.
template <typename Op> static Val foldInputs(NodeContext &c) {
  Val out = c.in(0);
  for (size_t i = 1; i < c.inputCount(); ++i)
    out = c.e.binary<Op>(out, c.in(i));
  return out;
}
void importMax(NodeContext &c) { c.out(foldInputs<nn::MaxOp>(c)); }
void importMin(NodeContext &c) { c.out(foldInputs<nn::MinOp>(c)); }
void importSum(NodeContext &c) { c.out(foldInputs<nn::AddOp>(c)); }
void importMean(NodeContext &c) {
  const Val sum = foldInputs<nn::AddOp>(c);
  c.out(c.e.div(sum, c.e.splatLike(sum, static_cast<double>(c.inputCount()))));
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

/// x to a small constant power, by products and roots: exact, fast, and with a
/// gradient that needs no logarithm. Null for other exponents.
static Val constantPower(NodeContext &c, const Val &x, double p) {
  Emitter &e = c.e;
  if (p == 1)
    return x;
  if (p == 0)
    return e.splatLike(x, 1);
  if (p == 2 || p == 3 || p == 4) {
    const Val square = e.mul(x, x);
    return p == 2 ? square : p == 3 ? e.mul(square, x) : e.mul(square, square);
  }
  if (!x.isFloat())
    return {};
  if (p == 0.5)
    return e.unary<nn::SqrtOp>(x);
  if (p == -0.5)
    return e.unary<nn::RsqrtOp>(x);
  if (p == -1)
    return e.unary<nn::ReciprocalOp>(x);
  if (p == -2)
    return e.unary<nn::ReciprocalOp>(e.mul(x, x));
  if (p == 1.5)
    return e.mul(x, e.unary<nn::SqrtOp>(x));
  if (p > 0 && p < 1) {
    // No slope at 0, as of a root (nn.sqrt).
    const Val zero = e.compare("eq", x, 0);
    const Val safe = e.select(zero, e.splatLike(x, 1), x);
    return e.select(zero, e.splatLike(x, 0),
                    e.binary<nn::PowOp>(safe, e.splatLike(x, p)));
  }
  return {};
}

void importPow(NodeContext &c) {
  const Val &x = c.in(0), &exponent = c.in(1);
  if (exponent.isKnown()) {
    const nn::Literal literal = c.e.literal(exponent);
    if (literal.getNumElements() > 0 && literal.getStoredElements() == 1) {
      const double p = literal.isFloat()
                           ? literal.doubleAt(literal.getOffset())
                           : double(literal.intAt(literal.getOffset()));
      const auto [base, unused] = c.e.broadcastPair(x, exponent);
      if (const Val power = constantPower(c, base, p)) {
        c.out(power);
        return;
      }
    }
  }
  if (!x.isFloat() && exponent.isFloat()) {
    // The result has the type of the base, the power is one of floats.
    const Val power =
        c.e.binary<nn::PowOp>(c.e.cast(x, exponent.getElementType()), exponent);
    c.out(c.e.cast(power, x.getElementType()));
    return;
  }
  c.out(c.e.binary<nn::PowOp>(x, c.e.cast(exponent, x.getElementType())));
}

//===----------------------------------------------------------------------===//
// Comparison and choice
//===----------------------------------------------------------------------===//

#define COMPARE(NAME, PREDICATE)                                               \
  void import##NAME(NodeContext &c) {                                          \
    c.out(c.e.compare(PREDICATE, c.in(0), c.in(1)));                           \
  }
COMPARE(Equal, "eq")
COMPARE(Greater, "gt")
COMPARE(GreaterOrEqual, "ge")
COMPARE(Less, "lt")
COMPARE(LessOrEqual, "le")

void importWhere(NodeContext &c) {
  c.out(c.e.select(c.in(0), c.in(1), c.in(2)));
}

/// The gradient at a bound is that of what the node was in PyTorch: clamp
/// passes it on, relu6 does not.
void importClip(NodeContext &c) {
  Emitter &e = c.e;
  Val x = c.in(0);
  // Bounds are inputs, or attributes before opset 11; either may be left out.
  const auto bound = [&](size_t i, const char *name) {
    if (c.has(i))
      return c.in(i);
    return c.attribute(name) ? e.splatLike(x, c.floatAttr(name, 0)) : Val();
  };
  const Val low = bound(1, "min"), high = bound(2, "max");
  const auto is = [&](const Val &v, double number) {
    if (!v || !v.isKnown() || !v.isFloat() || v.type.getNumElements() == 0)
      return false;
    return llvm::all_of(e.literal(v).doubles(),
                        [&](double d) { return d == number; });
  };
  const bool relu6 = is(low, 0) && is(high, 6);
  if (low)
    x = e.select(e.compare(relu6 ? "le" : "lt", x, low), low, x);
  if (high)
    x = e.select(e.compare(relu6 ? "ge" : "gt", x, high), high, x);
  c.out(x);
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

void importCast(NodeContext &c) {
  c.out(c.e.cast(c.in(0), c.typeAttr("to", ElementType::Undefined)));
}

/// The same bits as another type of the same width. Integers wrap when they are
/// cast.
void importBitCast(NodeContext &c) {
  const Val &x = c.in(0);
  const Type to = c.typeAttr("to", ElementType::Undefined);
  const Type from = x.getElementType();
  const auto integer = [](Type type) {
    return type.isInteger() && !type.isInteger(1);
  };
  if (from.getIntOrFloatBitWidth() != to.getIntOrFloatBitWidth())
    c.fail("it reads " + typeText(x.type) + " as elements of another width");
  if (from == to || (integer(from) && integer(to))) {
    c.out(c.e.cast(x, to));
    return;
  }
  const std::string bytes = rawBytes(c.known(0, "input").toAttr());
  c.out(nn::Literal::fromAttr(DenseElementsAttr::getFromRawBuffer(
      withElement(x.type, to), ArrayRef(bytes.data(), bytes.size()))));
}

void importCastLike(NodeContext &c) {
  c.out(c.e.cast(c.in(0), c.in(1).getElementType()));
}

} // namespace pipec::onnx
