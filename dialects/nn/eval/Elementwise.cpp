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

// The functions are looked up once an op, not once an element.
using FloatUnary = double (*)(double);
using IntUnary = int64_t (*)(int64_t);
using FloatBinary = double (*)(double, double);
using IntBinary = int64_t (*)(int64_t, int64_t);

static FloatUnary floatUnary(Operation *op) {
  return llvm::TypeSwitch<Operation *, FloatUnary>(op)
      .Case([](NegOp) { return [](double x) { return -x; }; })
      .Case([](AbsOp) { return [](double x) { return std::fabs(x); }; })
      .Case([](ExpOp) { return [](double x) { return std::exp(x); }; })
      .Case([](LogOp) { return [](double x) { return std::log(x); }; })
      .Case([](Log1pOp) { return [](double x) { return std::log1p(x); }; })
      .Case([](SqrtOp) { return [](double x) { return std::sqrt(x); }; })
      .Case([](RsqrtOp) { return [](double x) { return 1 / std::sqrt(x); }; })
      .Case([](ReciprocalOp) { return [](double x) { return 1 / x; }; })
      .Case([](TanhOp) { return [](double x) { return std::tanh(x); }; })
      .Case([](ErfOp) { return [](double x) { return std::erf(x); }; })
      .Case([](SigmoidOp) {
        return [](double x) { return 1 / (1 + std::exp(-x)); };
      })
      .Case([](ReluOp) {
        return [](double x) { return std::isnan(x) ? x : std::max(x, 0.0); };
      })
      .Case([](SinOp) { return [](double x) { return std::sin(x); }; })
      .Case([](CosOp) { return [](double x) { return std::cos(x); }; })
      .Case([](FloorOp) { return [](double x) { return std::floor(x); }; })
      .Case([](CeilOp) { return [](double x) { return std::ceil(x); }; })
      .Case([](RoundOp) { return [](double x) { return std::nearbyint(x); }; })
      .Case([](SignOp) {
        return [](double x) {
          return std::isnan(x) ? x : double((x > 0) - (x < 0));
        };
      })
      .Case([](StopGradientOp) { return [](double x) { return x; }; })
      .Default([](Operation *) { return nullptr; });
}

static IntUnary intUnary(Operation *op) {
  return llvm::TypeSwitch<Operation *, IntUnary>(op)
      .Case([](NegOp) { return [](int64_t x) { return wrapping('-', 0, x); }; })
      .Case([](AbsOp) {
        return [](int64_t x) { return x < 0 ? wrapping('-', 0, x) : x; };
      })
      .Case([](ReluOp) {
        return [](int64_t x) { return std::max<int64_t>(x, 0); };
      })
      .Case([](SignOp) {
        return [](int64_t x) { return int64_t((x > 0) - (x < 0)); };
      })
      .Case([](NotOp) { return [](int64_t x) { return int64_t(x == 0); }; })
      .Case([](StopGradientOp) { return [](int64_t x) { return x; }; })
      .Default([](Operation *) { return nullptr; });
}

static double larger(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
}
static double smaller(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
}
static double floorModFloat(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static FloatBinary floatBinary(Operation *op) {
  return llvm::TypeSwitch<Operation *, FloatBinary>(op)
      .Case([](AddOp) { return [](double a, double b) { return a + b; }; })
      .Case([](SubOp) { return [](double a, double b) { return a - b; }; })
      .Case([](MulOp) { return [](double a, double b) { return a * b; }; })
      .Case([](DivOp) { return [](double a, double b) { return a / b; }; })
      .Case([](PowOp) {
        return [](double a, double b) { return std::pow(a, b); };
      })
      .Case([](MaxOp) { return larger; })
      .Case([](MinOp) { return smaller; })
      .Case([](ModOp m) {
        return m.getFmod() ? [](double a, double b) { return std::fmod(a, b); }
                           : floorModFloat;
      })
      .Default([](Operation *) { return nullptr; });
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

static int64_t truncMod(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

/// Division, remainder and order of unsigned numbers; null for other ops.
static IntBinary unsignedBinary(Operation *op) {
  using U = uint64_t;
  return llvm::TypeSwitch<Operation *, IntBinary>(op)
      .Case([](DivOp) {
        return [](int64_t a, int64_t b) {
          return b == 0 ? int64_t(0) : static_cast<int64_t>(U(a) / U(b));
        };
      })
      .Case([](ModOp) {
        return [](int64_t a, int64_t b) {
          return b == 0 ? int64_t(0) : static_cast<int64_t>(U(a) % U(b));
        };
      })
      .Case([](MaxOp) {
        return [](int64_t a, int64_t b) { return U(a) < U(b) ? b : a; };
      })
      .Case([](MinOp) {
        return [](int64_t a, int64_t b) { return U(a) < U(b) ? a : b; };
      })
      .Default([](Operation *) { return nullptr; });
}

/// SplitMix64 (Steele, Lea, Flood 2014): number x of the stream `key`.
static int64_t splitMix(int64_t x, int64_t key) {
  uint64_t z = uint64_t(key) + (uint64_t(x) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<int64_t>(z ^ (z >> 31));
}

static IntBinary intBinary(Operation *op, bool isUnsigned) {
  if (isUnsigned)
    if (IntBinary f = unsignedBinary(op))
      return f;
  return llvm::TypeSwitch<Operation *, IntBinary>(op)
      .Case([](AddOp) {
        return [](int64_t a, int64_t b) { return wrapping('+', a, b); };
      })
      .Case([](SubOp) {
        return [](int64_t a, int64_t b) { return wrapping('-', a, b); };
      })
      .Case([](MulOp) {
        return [](int64_t a, int64_t b) { return wrapping('*', a, b); };
      })
      .Case([](DivOp) { return truncDiv; })
      .Case([](PowOp) { return intPow; })
      .Case([](MaxOp) {
        return [](int64_t a, int64_t b) { return std::max(a, b); };
      })
      .Case([](MinOp) {
        return [](int64_t a, int64_t b) { return std::min(a, b); };
      })
      .Case([](ModOp m) { return m.getFmod() ? truncMod : floorMod; })
      .Case([](AndOp) { return [](int64_t a, int64_t b) { return a & b; }; })
      .Case([](OrOp) { return [](int64_t a, int64_t b) { return a | b; }; })
      .Case([](XorOp) { return [](int64_t a, int64_t b) { return a ^ b; }; })
      .Case([](HashOp) { return splitMix; })
      .Default([](Operation *) { return nullptr; });
}

template <typename T> using Comparison = bool (*)(T, T);

template <typename T> static Comparison<T> comparison(StringRef predicate) {
  if (predicate == "eq")
    return [](T a, T b) { return a == b; };
  if (predicate == "ne")
    return [](T a, T b) { return a != b; };
  if (predicate == "lt")
    return [](T a, T b) { return a < b; };
  if (predicate == "le")
    return [](T a, T b) { return a <= b; };
  if (predicate == "gt")
    return [](T a, T b) { return a > b; };
  return [](T a, T b) { return a >= b; };
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

/// The value of an op on operands of one shape, or null when it has no meaning
/// on their type.
static Literal onShape(Operation *op, const Context &c,
                       ArrayRef<const Literal *> in, RankedTensorType type) {
  const ArrayRef<int64_t> shape = type.getShape();
  const Type element = type.getElementType();
  const auto ints = [&](auto f) {
    std::vector<int64_t> out;
    out.reserve(type.getNumElements());
    forEachPosition(shape, in, [&](ArrayRef<int64_t> at) {
      out.push_back(wrapTo(element, f(at)));
    });
    return Literal(type, std::move(out));
  };
  const auto floats = [&](auto f) {
    std::vector<double> out;
    out.reserve(type.getNumElements());
    forEachPosition(shape, in,
                    [&](ArrayRef<int64_t> at) { out.push_back(f(at)); });
    return c.floats(type, std::move(out));
  };
  const Literal &x = *in[0];
  if (auto compare = dyn_cast<CompareOp>(op)) {
    const Literal &y = *in[1];
    if (x.isFloat())
      return ints([&, f = comparison<double>(compare.getPredicate())](
                      ArrayRef<int64_t> at) {
        return f(x.doubleAt(at[0]), y.doubleAt(at[1]));
      });
    if (x.getElementType().isUnsignedInteger())
      return ints([&, f = comparison<uint64_t>(compare.getPredicate())](
                      ArrayRef<int64_t> at) {
        return f(uint64_t(x.intAt(at[0])), uint64_t(y.intAt(at[1])));
      });
    return ints([&, f = comparison<int64_t>(compare.getPredicate())](
                    ArrayRef<int64_t> at) {
      return f(x.intAt(at[0]), y.intAt(at[1]));
    });
  }
  if (isa<IsNanOp>(op))
    return ints([&](ArrayRef<int64_t> at) {
      return x.isFloat() && std::isnan(x.doubleAt(at[0]));
    });
  if (auto inf = dyn_cast<IsInfOp>(op))
    return ints([&](ArrayRef<int64_t> at) {
      const double v = x.isFloat() ? x.doubleAt(at[0]) : 0;
      return std::isinf(v) && (v > 0 ? inf.getPositive() : inf.getNegative());
    });
  if (isa<SelectOp>(op)) {
    const Literal &p = *in[1], &q = *in[2];
    if (holdsFloats(element))
      return floats([&](ArrayRef<int64_t> at) {
        return x.intAt(at[0]) ? p.doubleAt(at[1]) : q.doubleAt(at[2]);
      });
    return ints([&](ArrayRef<int64_t> at) {
      return x.intAt(at[0]) ? p.intAt(at[1]) : q.intAt(at[2]);
    });
  }
  if (in.size() == 1) {
    if (x.isFloat()) {
      const FloatUnary f = floatUnary(op);
      return f ? floats(
                     [&](ArrayRef<int64_t> at) { return f(x.doubleAt(at[0])); })
               : Literal();
    }
    const IntUnary f = intUnary(op);
    return f ? ints([&](ArrayRef<int64_t> at) { return f(x.intAt(at[0])); })
             : Literal();
  }
  const Literal &y = *in[1];
  if (x.isFloat()) {
    const FloatBinary f = floatBinary(op);
    return f ? floats([&](ArrayRef<int64_t> at) {
      return f(x.doubleAt(at[0]), y.doubleAt(at[1]));
    })
             : Literal();
  }
  const IntBinary f = intBinary(op, element.isUnsignedInteger());
  return f ? ints([&](ArrayRef<int64_t> at) {
    return f(x.intAt(at[0]), y.intAt(at[1]));
  })
           : Literal();
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
