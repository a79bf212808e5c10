//===- Convert.cpp - floats of another width ------------------------------===//
//
// By integers, for processors that have no such instructions: the compiler's
// support library, which would be called there, is not linked to plans. Devices
// round to bf16 two numbers at a time.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/fusion/Math.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace pipec::fusion;
using arith::CmpFPredicate;

static Value integerLike(ImplicitLocOpBuilder &b, Value x, int64_t value) {
  return MathEmitter(b, Machine()).integer(x.getType(), value);
}

static Value bitsOf(ImplicitLocOpBuilder &b, Value x, Type integer) {
  return arith::BitcastOp::create(b, withElement(x.getType(), integer), x);
}

/// The lanes of a device's vector, two each: it has instructions for those.
static int64_t pairsOf(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  return vector && vector.getNumElements() % 2 == 0
             ? vector.getNumElements() / 2
             : 0;
}

/// Two to a word: what is an upper half already is only masked.
static Value fromBFloatPairs(ImplicitLocOpBuilder &b, Value x, int64_t pairs) {
  auto type = VectorType::get({pairs}, b.getI32Type());
  Value words = vector::BitCastOp::create(b, type, x);
  Value low = arith::ShLIOp::create(b, words, integerLike(b, words, 16));
  Value high =
      arith::AndIOp::create(b, words, integerLike(b, words, 0xFFFF0000));
  return bitsOf(b, vector::InterleaveOp::create(b, low, high), b.getF32Type());
}

/// bf16 is the upper half of an f32.
static Value fromBFloat(ImplicitLocOpBuilder &b, Value x) {
  Value bits = bitsOf(b, x, b.getI16Type());
  Value wide = arith::ExtUIOp::create(
      b, withElement(bits.getType(), b.getI32Type()), bits);
  Value high = arith::ShLIOp::create(b, wide, integerLike(b, wide, 16));
  return bitsOf(b, high, b.getF32Type());
}

/// Adds just below half of what is cut off, one more where the last kept bit is
/// odd. A NaN keeps its upper half, and one bit more in case that was zero.
static Value toBFloat(ImplicitLocOpBuilder &b, Value x) {
  Value bits = bitsOf(b, x, b.getI32Type());
  Value high = arith::ShRUIOp::create(b, bits, integerLike(b, bits, 16));
  Value odd = arith::AndIOp::create(b, high, integerLike(b, bits, 1));
  Value sum = arith::AddIOp::create(b, bits, integerLike(b, bits, 0x7FFF));
  sum = arith::AddIOp::create(b, sum, odd);
  Value rounded = arith::ShRUIOp::create(b, sum, integerLike(b, bits, 16));
  Value quiet = arith::OrIOp::create(b, high, integerLike(b, bits, 0x40));
  Value isNaN = arith::CmpFOp::create(b, CmpFPredicate::UNO, x, x);
  Value chosen = arith::SelectOp::create(b, isNaN, quiet, rounded);
  Value half = arith::TruncIOp::create(
      b, withElement(bits.getType(), b.getI16Type()), chosen);
  return bitsOf(b, half, b.getBF16Type());
}

/// What devices have an instruction for; a NaN becomes the one that it knows.
static Value bfloatPair(ImplicitLocOpBuilder &b, Value low, Value high) {
  return LLVM::CallIntrinsicOp::create(
             b, VectorType::get({2}, b.getBF16Type()),
             b.getStringAttr("llvm.nvvm.ff2bf16x2.rn"), ValueRange{high, low})
      .getResult(0);
}

/// `together` numbers at a time, 1 or 2.
static Value toBFloats(ImplicitLocOpBuilder &b, Value x, int64_t together) {
  Value zero = MathEmitter(b, Machine()).constant(b.getF32Type(), 0);
  auto type = dyn_cast<VectorType>(x.getType());
  if (!type)
    return vector::ExtractOp::create(b, bfloatPair(b, x, zero), 0);
  auto lane = [&](int64_t i) -> Value {
    return vector::ExtractOp::create(b, x, i);
  };
  const int64_t lanes = type.getNumElements();
  SmallVector<Value> results;
  for (int64_t i = 0; i < lanes; i += together) {
    const int64_t count = std::min(together, lanes - i);
    Value pair = bfloatPair(b, lane(i), count == 2 ? lane(i + 1) : zero);
    for (int64_t half = 0; half < count; ++half)
      results.push_back(vector::ExtractOp::create(b, pair, half));
  }
  return vector::FromElementsOp::create(
      b, cast<VectorType>(withElement(type, b.getBF16Type())), results);
}

/// f64 to f32 so that rounding the result once more is as rounding x: towards
/// zero, and odd when inexact.
static Value toOddFloat(ImplicitLocOpBuilder &b, Value x) {
  Value near =
      arith::TruncFOp::create(b, withElement(x.getType(), b.getF32Type()), x);
  Value back = arith::ExtFOp::create(b, x.getType(), near);
  Value larger = arith::CmpFOp::create(b, CmpFPredicate::OGT,
                                       math::AbsFOp::create(b, back),
                                       math::AbsFOp::create(b, x));
  Value inexact = arith::CmpFOp::create(b, CmpFPredicate::ONE, back, x);
  Value bits = bitsOf(b, near, b.getI32Type());
  Value below = arith::SubIOp::create(b, bits, integerLike(b, bits, 1));
  bits = arith::SelectOp::create(b, larger, below, bits);
  Value odd = arith::OrIOp::create(b, bits, integerLike(b, bits, 1));
  bits = arith::SelectOp::create(b, inexact, odd, bits);
  return bitsOf(b, bits, b.getF32Type());
}

Value pipec::fusion::convertFloat(ImplicitLocOpBuilder &b,
                                  const Machine &machine, Value x,
                                  Type element) {
  Type from = getElementTypeOrSelf(x);
  if (from == element)
    return x;
  if (int64_t pairs = machine.nvptx ? pairsOf(x.getType()) : 0;
      pairs && from.isBF16())
    x = fromBFloatPairs(b, x, pairs);
  else if (from.isBF16())
    x = fromBFloat(b, x);
  else if (from.isF64() && isNarrow(element))
    x = toOddFloat(b, x);
  if (element.isBF16()) {
    x = convertFloat(b, machine, x, b.getF32Type());
    return machine.nvptx ? toBFloats(b, x, machine.roundsPairs ? 2 : 1)
                         : toBFloat(b, x);
  }
  from = getElementTypeOrSelf(x);
  Type to = withElement(x.getType(), element);
  if (from == element)
    return x;
  if (element.getIntOrFloatBitWidth() > from.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, to, x);
  return arith::TruncFOp::create(b, to, x);
}
