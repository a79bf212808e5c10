//===- Elementwise.cpp - evaluation of elementwise ops --------------------===//
#include "dialects/nn/eval/Kernels.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;

namespace pipec::nn::eval {

/// Python's remainder: the sign of b.
static int64_t floorMod(int64_t a, int64_t b) {
  if (b == 0 || b == -1)
    return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int64_t truncDiv(int64_t a, int64_t b) {
  if (b == 0)
    return 0;
  return b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
}
static int64_t wrapping(char op, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == '+' ? x + y : op == '-' ? x - y : x * y);
}

static std::optional<double> floatUnary(Operation *op, double x) {
  return llvm::TypeSwitch<Operation *, std::optional<double>>(op)
      .Case([&](NegOp) { return -x; })
      .Case([&](AbsOp) { return std::fabs(x); })
      .Case([&](ExpOp) { return std::exp(x); })
      .Case([&](LogOp) { return std::log(x); })
      .Case([&](Log1pOp) { return std::log1p(x); })
      .Case([&](SqrtOp) { return std::sqrt(x); })
      .Case([&](RsqrtOp) { return 1 / std::sqrt(x); })
      .Case([&](ReciprocalOp) { return 1 / x; })
      .Case([&](TanhOp) { return std::tanh(x); })
      .Case([&](ErfOp) { return std::erf(x); })
      .Case([&](SigmoidOp) { return 1 / (1 + std::exp(-x)); })
      .Case([&](ReluOp) { return std::isnan(x) ? x : std::max(x, 0.0); })
      .Case([&](SinOp) { return std::sin(x); })
      .Case([&](CosOp) { return std::cos(x); })
      .Case([&](FloorOp) { return std::floor(x); })
      .Case([&](CeilOp) { return std::ceil(x); })
      .Case([&](RoundOp) { return std::nearbyint(x); })
      .Case(
          [&](SignOp) { return std::isnan(x) ? x : double((x > 0) - (x < 0)); })
      .Case([&](StopGradientOp) { return x; })
      .Default([](Operation *) { return std::nullopt; });
}

static std::optional<int64_t> intUnary(Operation *op, int64_t x) {
  return llvm::TypeSwitch<Operation *, std::optional<int64_t>>(op)
      .Case([&](NegOp) { return wrapping('-', 0, x); })
      .Case([&](AbsOp) { return x < 0 ? wrapping('-', 0, x) : x; })
      .Case([&](ReluOp) { return std::max<int64_t>(x, 0); })
      .Case([&](SignOp) { return int64_t((x > 0) - (x < 0)); })
      .Case([&](NotOp) { return int64_t(x == 0); })
      .Case([&](StopGradientOp) { return x; })
      .Default([](Operation *) { return std::nullopt; });
}

static double larger(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
}
static double smaller(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
}

static std::optional<double> floatBinary(Operation *op, double a, double b) {
  return llvm::TypeSwitch<Operation *, std::optional<double>>(op)
      .Case([&](AddOp) { return a + b; })
      .Case([&](SubOp) { return a - b; })
      .Case([&](MulOp) { return a * b; })
      .Case([&](DivOp) { return a / b; })
      .Case([&](PowOp) { return std::pow(a, b); })
      .Case([&](MaxOp) { return larger(a, b); })
      .Case([&](MinOp) { return smaller(a, b); })
      .Case([&](ModOp m) {
        const double r = std::fmod(a, b);
        return !m.getFmod() && r != 0 && (r < 0) != (b < 0) ? r + b : r;
      })
      .Default([](Operation *) { return std::nullopt; });
}

static int64_t intPow(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1)
      result = wrapping('*', result, base);
    base = wrapping('*', base, base);
  }
  return result;
}

static std::optional<int64_t> intBinary(Operation *op, int64_t a, int64_t b,
                                        bool isUnsigned) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool less = isUnsigned ? ua < ub : a < b;
  return llvm::TypeSwitch<Operation *, std::optional<int64_t>>(op)
      .Case([&](AddOp) { return wrapping('+', a, b); })
      .Case([&](SubOp) { return wrapping('-', a, b); })
      .Case([&](MulOp) { return wrapping('*', a, b); })
      .Case([&](DivOp) {
        if (isUnsigned)
          return ub == 0 ? int64_t(0) : static_cast<int64_t>(ua / ub);
        return truncDiv(a, b);
      })
      .Case([&](PowOp) { return intPow(a, b); })
      .Case([&](MaxOp) { return less ? b : a; })
      .Case([&](MinOp) { return less ? a : b; })
      .Case([&](ModOp m) {
        if (isUnsigned)
          return ub == 0 ? int64_t(0) : static_cast<int64_t>(ua % ub);
        return m.getFmod() ? (b == 0 || b == -1 ? 0 : a % b) : floorMod(a, b);
      })
      .Case([&](AndOp) { return a & b; })
      .Case([&](OrOp) { return a | b; })
      .Case([&](XorOp) { return a ^ b; })
      .Default([](Operation *) { return std::nullopt; });
}

template <typename T>
static int64_t compareValues(StringRef predicate, T a, T b) {
  if (predicate == "eq")
    return a == b;
  if (predicate == "ne")
    return a != b;
  if (predicate == "lt")
    return a < b;
  if (predicate == "le")
    return a <= b;
  return predicate == "gt" ? a > b : a >= b;
}

/// Values outside the range saturate; NaN gives 0.
static int64_t floatToInt(Type element, double x) {
  if (element.isInteger(1))
    return x != 0;
  if (std::isnan(x))
    return 0;
  x = std::trunc(x);
  if (element.isUnsignedInteger(64) && x >= 0x1p63)
    return x >= 0x1p64 ? -1 : static_cast<int64_t>(static_cast<uint64_t>(x));
  if (x >= 0x1p63)
    return wrapTo(element, std::numeric_limits<int64_t>::max());
  if (x <= -0x1p63)
    return wrapTo(element, std::numeric_limits<int64_t>::min());
  return wrapTo(element, static_cast<int64_t>(x));
}

static Literal castLiteral(const Context &c, const Literal &x, Type to,
                           RankedTensorType type) {
  const Type from = x.getElementType();
  if (holdsFloats(to)) {
    std::vector<double> out;
    forEachPosition(x.getShape(), {&x}, [&](ArrayRef<int64_t> at) {
      if (x.isFloat())
        out.push_back(x.doubleAt(at[0]));
      else if (from.isUnsignedInteger(64))
        out.push_back(
            static_cast<double>(static_cast<uint64_t>(x.intAt(at[0]))));
      else
        out.push_back(static_cast<double>(x.intAt(at[0])));
    });
    return c.floats(type, std::move(out));
  }
  std::vector<int64_t> out;
  forEachPosition(x.getShape(), {&x}, [&](ArrayRef<int64_t> at) {
    if (x.isFloat())
      out.push_back(floatToInt(to, x.doubleAt(at[0])));
    else
      out.push_back(to.isInteger(1) ? x.intAt(at[0]) != 0
                                    : wrapTo(to, x.intAt(at[0])));
  });
  return Literal(type, std::move(out));
}

/// The value of an op on operands of one shape, or null for another family.
static Literal onShape(Operation *op, const Context &c,
                       ArrayRef<const Literal *> in, RankedTensorType type) {
  const ArrayRef<int64_t> shape = type.getShape();
  const Type element = type.getElementType();
  auto ints = [&](auto f) {
    std::vector<int64_t> out;
    bool known = true;
    forEachPosition(shape, in, [&](ArrayRef<int64_t> at) {
      std::optional<int64_t> v = f(at);
      known &= v.has_value();
      out.push_back(wrapTo(element, v.value_or(0)));
    });
    return known ? Literal(type, std::move(out)) : Literal();
  };
  auto floats = [&](auto f) {
    std::vector<double> out;
    bool known = true;
    forEachPosition(shape, in, [&](ArrayRef<int64_t> at) {
      std::optional<double> v = f(at);
      known &= v.has_value();
      out.push_back(v.value_or(0));
    });
    return known ? c.floats(type, std::move(out)) : Literal();
  };
  const Literal &x = *in[0];
  if (auto compare = dyn_cast<CompareOp>(op))
    return ints([&](ArrayRef<int64_t> at) -> std::optional<int64_t> {
      if (x.isFloat())
        return compareValues(compare.getPredicate(), x.doubleAt(at[0]),
                             in[1]->doubleAt(at[1]));
      if (x.getElementType().isUnsignedInteger())
        return compareValues(compare.getPredicate(), uint64_t(x.intAt(at[0])),
                             uint64_t(in[1]->intAt(at[1])));
      return compareValues(compare.getPredicate(), x.intAt(at[0]),
                           in[1]->intAt(at[1]));
    });
  if (isa<IsNanOp>(op))
    return ints([&](ArrayRef<int64_t> at) -> std::optional<int64_t> {
      return x.isFloat() && std::isnan(x.doubleAt(at[0]));
    });
  if (auto inf = dyn_cast<IsInfOp>(op))
    return ints([&](ArrayRef<int64_t> at) -> std::optional<int64_t> {
      const double v = x.isFloat() ? x.doubleAt(at[0]) : 0;
      return std::isinf(v) && (v > 0 ? inf.getPositive() : inf.getNegative());
    });
  if (isa<SelectOp>(op)) {
    if (holdsFloats(element))
      return floats([&](ArrayRef<int64_t> at) -> std::optional<double> {
        return x.intAt(at[0]) ? in[1]->doubleAt(at[1]) : in[2]->doubleAt(at[2]);
      });
    return ints([&](ArrayRef<int64_t> at) -> std::optional<int64_t> {
      return x.intAt(at[0]) ? in[1]->intAt(at[1]) : in[2]->intAt(at[2]);
    });
  }
  if (in.size() == 1) {
    if (x.isFloat())
      return floats([&](ArrayRef<int64_t> at) {
        return floatUnary(op, x.doubleAt(at[0]));
      });
    return ints(
        [&](ArrayRef<int64_t> at) { return intUnary(op, x.intAt(at[0])); });
  }
  if (x.isFloat())
    return floats([&](ArrayRef<int64_t> at) {
      return floatBinary(op, x.doubleAt(at[0]), in[1]->doubleAt(at[1]));
    });
  return ints([&](ArrayRef<int64_t> at) {
    return intBinary(op, x.intAt(at[0]), in[1]->intAt(at[1]),
                     element.isUnsignedInteger());
  });
}

FailureOr<Results> elementwise(Operation *op, const Context &c) {
  if (!op->hasTrait<Elementwise>() || op->getNumOperands() == 0)
    return Results{};
  const RankedTensorType type = resultType(op);
  // Only the dimensions along which some operand varies are computed.
  SmallVector<int64_t> shape(type.getShape());
  if (type.getNumElements() > 0)
    for (int64_t d = 0; d < type.getRank(); ++d)
      if (llvm::all_of(c.operands, [&](const Literal &x) {
            return x.getStrides()[d] == 0;
          }))
        shape[d] = 1;
  SmallVector<Literal> small;
  for (const Literal &x : c.operands)
    small.push_back(x.view(x.getType().clone(shape),
                           SmallVector<int64_t>(x.getStrides()),
                           x.getOffset()));
  SmallVector<const Literal *> in;
  for (const Literal &x : small)
    in.push_back(&x);
  const RankedTensorType smallType = type.clone(shape);
  Literal out = isa<CastOp>(op)
                    ? castLiteral(c, small[0], type.getElementType(), smallType)
                    : onShape(op, c, in, smallType);
  if (!out) {
    c.why = "no meaning on this element type";
    return failure();
  }
  return Results{out.broadcastTo(type.getShape())};
}

} // namespace pipec::nn::eval
