//===- Math.cpp - math functions on scalars and vectors -------------------===//
//
// Coefficients are minimax fits (Lawson iteration on Chebyshev points, rounded
// to f32) of the function named beside them.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Math.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace pipec::fusion;
using arith::CmpFPredicate;

Type pipec::fusion::withElement(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.clone(element);
  return element;
}

bool pipec::fusion::isNarrow(Type element) {
  return element.isF16() || element.isBF16();
}

Type pipec::fusion::accumulatorType(Type element) {
  return isNarrow(element) ? Float32Type::get(element.getContext()) : element;
}

static bool isF64(Value x) { return getElementTypeOrSelf(x).isF64(); }

Value MathEmitter::constant(Type type, double value) {
  auto element = cast<FloatType>(getElementTypeOrSelf(type));
  TypedAttr attr = b.getFloatAttr(element, value);
  if (auto vector = dyn_cast<VectorType>(type))
    attr = SplatElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, attr);
}

Value MathEmitter::integer(Type type, int64_t value) {
  TypedAttr attr = b.getIntegerAttr(getElementTypeOrSelf(type), value);
  if (auto vector = dyn_cast<VectorType>(type))
    attr = SplatElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, attr);
}

Value MathEmitter::fma(Value x, Value y, Value z) {
  return math::FmaOp::create(b, x, y, z);
}

/// c[0] + c[1] x + c[2] x^2 + …, by Horner's rule.
Value MathEmitter::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = constant(x.getType(), coefficients.back());
  for (double c : llvm::reverse(coefficients.drop_back()))
    sum = fma(sum, x, constant(x.getType(), c));
  return sum;
}

namespace {
/// Comparison and selection, the way every expansion below uses them.
struct Choose {
  ImplicitLocOpBuilder &b;
  Value operator()(CmpFPredicate predicate, Value x, Value y, Value then,
                   Value otherwise) {
    Value condition = arith::CmpFOp::create(b, predicate, x, y);
    return arith::SelectOp::create(b, condition, then, otherwise);
  }
};
} // namespace

Value MathEmitter::bitcast(Value x, Type element) {
  return arith::BitcastOp::create(b, withElement(x.getType(), element), x);
}

/// Adding 1.5 2^23 rounds to an integer, which is then in the low bits.
constexpr double kShift = 0x1.8p23;

MathEmitter::Reduced MathEmitter::reduceExponent(Value x) {
  Type type = x.getType();
  Reduced result;
  Value shift = constant(type, kShift);
  result.shifted = fma(x, constant(type, 0x1.715476p+0), shift);
  result.n = arith::SubFOp::create(b, result.shifted, shift);
  Value r = fma(result.n, constant(type, -0x1.62e43p-1), x);
  result.r = fma(result.n, constant(type, 0x1.05c61p-29), r);
  return result;
}

Value MathEmitter::power(Value shifted) {
  Value bits = bitcast(shifted, b.getI32Type());
  Value exponent = arith::ShLIOp::create(b, bits, integer(bits.getType(), 23));
  Value biased = arith::AddIOp::create(
      b, exponent, integer(bits.getType(), int64_t(127) << 23));
  return bitcast(biased, b.getF32Type());
}

/// One instruction where there is one; elsewhere two products, the first exact,
/// or one where the result is no smaller than the smallest normal number.
Value MathEmitter::scale(Value y, const Reduced &by) {
  constexpr int64_t kRegister = 16;
  auto type = dyn_cast<VectorType>(y.getType());
  if (machine.avx512 && type && type.getNumElements() % kRegister == 0) {
    auto part = VectorType::get({kRegister}, b.getF32Type());
    Value result = y;
    Value mask = integer(b.getI16Type(), -1),
          current = integer(b.getI32Type(), 4);
    for (int64_t at = 0; at < type.getNumElements(); at += kRegister) {
      auto slice = [&](Value v) -> Value {
        return vector::ExtractStridedSliceOp::create(b, v, at, kRegister, 1);
      };
      Value low = slice(y), exponent = slice(by.n);
      Value scaled =
          LLVM::CallIntrinsicOp::create(
              b, part, b.getStringAttr("llvm.x86.avx512.mask.scalef.ps.512"),
              ValueRange{low, exponent, low, mask, current})
              ->getResult(0);
      result = vector::InsertStridedSliceOp::create(b, scaled, result, at, 1);
    }
    return result;
  }
  if (by.isNormal)
    return arith::MulFOp::create(b, y, power(by.shifted));
  // Of the shift's own bits none is left in a power.
  Value bits = bitcast(by.shifted, b.getI32Type());
  Value half = arith::ShRSIOp::create(b, bits, integer(bits.getType(), 1));
  Value rest = arith::SubIOp::create(b, bits, half);
  Value first =
      arith::MulFOp::create(b, y, power(bitcast(half, b.getF32Type())));
  return arith::MulFOp::create(b, first, power(bitcast(rest, b.getF32Type())));
}

/// 1 / x by the device's instruction, one unit off.
Value MathEmitter::reciprocal(Value x) {
  return lanewise(x, [&](Value lane) -> Value {
    return LLVM::CallIntrinsicOp::create(
               b, b.getF32Type(), b.getStringAttr("llvm.nvvm.rcp.approx.ftz.f"),
               lane)
        .getResult(0);
  });
}

/// The instructions of a division whose operands and quotient are ordinary
/// numbers, which are the same as those of any other but for a look at the
/// operands first, and a branch. Right for reciprocals two units off, too: all
/// quotients of a tanh have been tried.
Value MathEmitter::ratio(Value a, Value d) {
  if (!machine.nvptx)
    return arith::DivFOp::create(b, a, d);
  Type type = d.getType();
  Value r = reciprocal(d);
  Value minus = arith::NegFOp::create(b, d);
  r = fma(r, fma(minus, r, constant(type, 1)), r);
  Value q = arith::MulFOp::create(b, a, r);
  return fma(r, fma(minus, q, a), q);
}

/// (e^r - 1 - r) / r^2, |r| <= ln(2)/2
static constexpr double kExponential[] = {
    0.4999999403953552, 0.16666515171527863, 0.04166845604777336,
    0.008369418792426586, 0.0013813144760206342};

/// NaN passes every comparison below, and stays.
Value MathEmitter::exp(Value x) {
  if (isF64(x))
    return library("exp", x);
  Type type = x.getType();
  Choose choose{b};
  Value low = constant(type, -104), high = constant(type, 89);
  Value t = choose(CmpFPredicate::OGT, low, x, low, x);
  t = choose(CmpFPredicate::OLT, high, t, high, t);
  return expOf(reduceExponent(t));
}

Value MathEmitter::expOf(const Reduced &reduced) {
  SmallVector<double> coefficients = {1, 1};
  llvm::append_range(coefficients, kExponential);
  return scale(polynomial(reduced.r, coefficients), reduced);
}

/// 2^x by the device's instruction; 0 where that is no normal number.
Value MathEmitter::roughPower(Value x) {
  return lanewise(x, [&](Value lane) -> Value {
    return LLVM::CallIntrinsicOp::create(
               b, b.getF32Type(), b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f"),
               lane)
        .getResult(0);
  });
}

Value MathEmitter::roughExp(Value x) {
  Value log2e = constant(x.getType(), 0x1.715476p+0);
  return roughPower(arith::MulFOp::create(b, x, log2e));
}

/// e ln 2 + log(1 + f) with 1 + f in [1/sqrt 2, sqrt 2].
Value MathEmitter::log(Value x) {
  if (isF64(x))
    return library("log", x);
  Type type = x.getType(), ints = withElement(type, b.getI32Type());
  Choose choose{b};
  Value zero = constant(type, 0);
  // Below the normal range: scale up by 2^23.
  Value tiny =
      arith::CmpFOp::create(b, CmpFPredicate::OLT, x, constant(type, 0x1p-126));
  Value scaled = arith::SelectOp::create(
      b, tiny, arith::MulFOp::create(b, x, constant(type, 0x1p23)), x);
  Value bits = arith::BitcastOp::create(b, ints, scaled);
  Value offset =
      arith::SubIOp::create(b, bits, integer(ints, 0x3f3504f3)); // sqrt(1/2)
  Value exponent = arith::ShRSIOp::create(b, offset, integer(ints, 23));
  Value mantissa = arith::BitcastOp::create(
      b, type,
      arith::SubIOp::create(
          b, bits, arith::ShLIOp::create(b, exponent, integer(ints, 23))));
  Value e = arith::SIToFPOp::create(b, type, exponent);
  e = arith::SelectOp::create(
      b, tiny, arith::SubFOp::create(b, e, constant(type, 23)), e);
  Value f = arith::SubFOp::create(b, mantissa, constant(type, 1));
  // log(1 + f) = f - f^2/2 + f^3 (…)
  Value p = polynomial(f, {0.3333333134651184, -0.2500081956386566,
                           0.20001226663589478, -0.16623356938362122,
                           0.14201757311820984, -0.13160182535648346,
                           0.1276157647371292, -0.07634496688842773});
  Value f2 = arith::MulFOp::create(b, f, f);
  Value tail = arith::MulFOp::create(b, arith::MulFOp::create(b, f2, f), p);
  tail = fma(constant(type, -0.5), f2, tail);
  tail = fma(e, constant(type, -2.12194440e-4), tail);
  Value y =
      fma(e, constant(type, 0.693359375), arith::AddFOp::create(b, f, tail));
  Value infinity = constant(type, INFINITY);
  y = choose(CmpFPredicate::OEQ, x, infinity, infinity, y);
  y = choose(CmpFPredicate::OEQ, x, zero, constant(type, -INFINITY), y);
  return choose(CmpFPredicate::UGE, x, zero,
                choose(CmpFPredicate::UNO, x, x, x, y), constant(type, NAN));
}

/// log(1 + x) corrected by what rounding 1 + x loses.
Value MathEmitter::log1p(Value x) {
  if (isF64(x))
    return library("log1p", x);
  Type type = x.getType();
  Choose choose{b};
  Value one = constant(type, 1);
  Value u = arith::AddFOp::create(b, x, one);
  Value ratio = arith::DivFOp::create(b, x, arith::SubFOp::create(b, u, one));
  Value y = arith::MulFOp::create(b, log(u), ratio);
  y = choose(CmpFPredicate::OEQ, u, one, x, y);
  return choose(CmpFPredicate::OEQ, x, constant(type, INFINITY), x, y);
}

/// h / (h + 1) with h = (e^2|x| - 1) / 2 = 2^n (e^2s - 1) / 2 + (2^n - 1) / 2,
/// |x| = n ln(2)/2 + s. What one product leaves of s is below half a unit in
/// the last place of the result: where n is large h hardly matters.
Value MathEmitter::tanh(Value x) {
  if (isF64(x))
    return library("tanh", x);
  Type type = x.getType();
  Choose choose{b};
  Value high = constant(type, 10); // where it has long been 1
  Value a = math::AbsFOp::create(b, x);
  a = choose(CmpFPredicate::OLT, high, a, high, a);
  Value shift = constant(type, kShift);
  Value shifted = fma(a, constant(type, 0x1.715476p+1), shift);
  Value n = arith::SubFOp::create(b, shifted, shift);
  Value s = fma(n, constant(type, -0x1.62e43p-2), a), power2 = power(shifted);
  // (e^2s - 1) / 2 = s + s^2 (…)
  SmallVector<double> coefficients;
  for (auto [i, c] : llvm::enumerate(kExponential))
    coefficients.push_back(std::ldexp(c, static_cast<int>(i) + 1));
  Value q = fma(arith::MulFOp::create(b, s, s), polynomial(s, coefficients), s);
  Value half = constant(type, 0.5);
  Value h = fma(power2, q, fma(power2, half, constant(type, -0.5)));
  Value y = ratio(h, arith::AddFOp::create(b, h, constant(type, 1)));
  return math::CopySignOp::create(b, y, x);
}

/// 1 - 2 / (1 + e^2x), and x - x^3 / 3 where that would cancel.
Value MathEmitter::roughTanh(Value x) {
  Type type = x.getType();
  Value e =
      roughPower(arith::MulFOp::create(b, x, constant(type, 0x1.715476p+1)));
  Value r = reciprocal(arith::AddFOp::create(b, e, constant(type, 1)));
  Value y = fma(r, constant(type, -2), constant(type, 1));
  Value cube = arith::MulFOp::create(b, arith::MulFOp::create(b, x, x), x);
  Value small = fma(cube, constant(type, -1.0 / 3), x);
  return Choose{b}(CmpFPredicate::OLT, math::AbsFOp::create(b, x),
                   constant(type, 0x1p-4), small, y);
}

Value MathEmitter::erf(Value x) {
  if (isF64(x))
    return library("erf", x);
  Type type = x.getType();
  Choose choose{b};
  Value a = math::AbsFOp::create(b, x);
  // erf(x) = x + x (…) up to 0.93
  Value s = arith::MulFOp::create(b, a, a);
  Value p = polynomial(s, {0.12837916612625122, -0.37612631916999817,
                           0.11283687502145767, -0.026858942583203316,
                           0.005199907347559929, -0.0008130018250085413,
                           8.316794264828786e-05});
  Value small = fma(a, p, a);
  // log(erfc(x)) on [0.93, 4]; erf is 1 in f32 from 3.92 on
  Value four = constant(type, 4);
  Value t = choose(CmpFPredicate::OLT, a, four, a, four);
  Value q = polynomial(t, {0.00017733375716488808, -1.1295276880264282,
                           -0.6333212852478027, -0.10830825567245483,
                           0.025137612596154213, -0.004177958704531193,
                           0.00043588399421423674, -2.121785655617714e-05});
  Reduced reduced = reduceExponent(q);
  reduced.isNormal = true;
  Value large = arith::SubFOp::create(b, constant(type, 1), expOf(reduced));
  Value y = choose(CmpFPredicate::OLE, a, constant(type, 0.93), small, large);
  y = math::CopySignOp::create(b, y, x);
  return choose(CmpFPredicate::UNO, x, x, x, y);
}

Value MathEmitter::sigmoid(Value x) {
  Value one = constant(x.getType(), 1);
  Value e = exp(arith::NegFOp::create(b, x));
  return arith::DivFOp::create(b, one, arith::AddFOp::create(b, one, e));
}

Value MathEmitter::roughSigmoid(Value x) {
  Type type = x.getType();
  Value e =
      roughPower(arith::MulFOp::create(b, x, constant(type, -0x1.715476p+0)));
  return reciprocal(arith::AddFOp::create(b, e, constant(type, 1)));
}

/// Declares `name` once in the module around the builder.
static func::FuncOp declare(ImplicitLocOpBuilder &b, StringRef name,
                            FunctionType type) {
  auto module =
      b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  if (auto known = module.lookupSymbol<func::FuncOp>(name))
    return known;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module.getBody());
  auto function = func::FuncOp::create(b, name, type);
  function.setPrivate();
  return function;
}

/// For each of the few lanes of a device's thread.
Value MathEmitter::lanewise(Value x, llvm::function_ref<Value(Value)> emit) {
  auto type = dyn_cast<VectorType>(x.getType());
  if (!type)
    return emit(x);
  SmallVector<Value> results;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    results.push_back(emit(vector::ExtractOp::create(b, x, i)));
  return vector::FromElementsOp::create(b, type, results);
}

/// A call for each of them.
Value MathEmitter::lanewise(func::FuncOp callee, ValueRange arguments,
                            VectorType type) {
  SmallVector<Value> results;
  for (int64_t i = 0; i < type.getNumElements(); ++i) {
    SmallVector<Value> lane;
    for (Value argument : arguments)
      lane.push_back(vector::ExtractOp::create(b, argument, i));
    results.push_back(func::CallOp::create(b, callee, lane).getResult(0));
  }
  return vector::FromElementsOp::create(b, type, results);
}

Value MathEmitter::library(StringRef name, ValueRange arguments) {
  Type type = arguments.front().getType();
  Type element = getElementTypeOrSelf(type);
  SmallVector<Type> types(arguments.size(), element);
  std::string symbol = element.isF32() ? (name + "f").str() : name.str();
  func::FuncOp callee = declare(b, machine.nvptx ? "__nv_" + symbol : symbol,
                                b.getFunctionType(types, element));
  auto vector = dyn_cast<VectorType>(type);
  if (!vector)
    return func::CallOp::create(b, callee, arguments).getResult(0);
  if (machine.nvptx)
    return lanewise(callee, arguments, vector);

  // Lanes go through memory on the stack of the kernel.
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  SmallVector<Value> slots;
  {
    OpBuilder::InsertionGuard guard(b);
    Operation *function = b.getInsertionBlock()->getParentOp();
    if (!isa<func::FuncOp>(function))
      function = function->getParentOfType<func::FuncOp>();
    b.setInsertionPointToStart(&cast<func::FuncOp>(function).front());
    Value one = arith::ConstantIntOp::create(b, 1, 64);
    for (size_t i = 0; i < arguments.size(); ++i)
      slots.push_back(LLVM::AllocaOp::create(b, pointer, vector, one, 64));
  }
  for (auto [slot, argument] : llvm::zip_equal(slots, arguments))
    LLVM::StoreOp::create(b, argument, slot);
  Value zero = arith::ConstantIntOp::create(b, 0, 64);
  Value one = arith::ConstantIntOp::create(b, 1, 64);
  Value lanes = arith::ConstantIntOp::create(b, vector.getNumElements(), 64);
  auto loop = scf::ForOp::create(b, zero, lanes, one);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> lane;
    Value first;
    for (Value slot : slots) {
      Value at =
          LLVM::GEPOp::create(b, pointer, element, slot,
                              ArrayRef<LLVM::GEPArg>{loop.getInductionVar()});
      first = first ? first : at;
      lane.push_back(LLVM::LoadOp::create(b, element, at));
    }
    Value y = func::CallOp::create(b, callee, lane).getResult(0);
    LLVM::StoreOp::create(b, y, first);
  }
  return LLVM::LoadOp::create(b, vector, slots.front());
}
