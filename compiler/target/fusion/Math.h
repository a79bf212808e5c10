//===- Math.h - math functions on scalars and vectors ----------*- C++ -*-===//
//
// f32 functions are expanded here, the same operations for a scalar and for a
// lane of a vector, so that a value does not depend on where it is computed.
// f64, and the rare f32 functions, call the C library element by element.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace pipec::fusion {

/// What generated code may use of the processor. The results are the same bits
/// with and without.
struct Machine {
  bool avx512 = false;
  /// Library functions are those of NVIDIA's libdevice.
  bool nvptx = false;
  /// Of a device: rounds to bf16 two numbers at a time, which are both in
  /// registers then.
  bool roundsPairs = false;
};

/// Writes arithmetic at a builder's place. Every function takes scalars or
/// vectors of one type.
class MathEmitter {
public:
  MathEmitter(mlir::ImplicitLocOpBuilder &b, const Machine &machine)
      : b(b), machine(machine) {}

  mlir::Value exp(mlir::Value x);
  /// On a device, in f32, of numbers with the digits of a narrow type: right to
  /// 18 bits, for exp to |x| 2^-24 of the result and a few units more.
  mlir::Value roughExp(mlir::Value x);
  mlir::Value roughTanh(mlir::Value x);
  mlir::Value roughSigmoid(mlir::Value x);
  mlir::Value log(mlir::Value x);
  mlir::Value log1p(mlir::Value x);
  mlir::Value tanh(mlir::Value x);
  mlir::Value erf(mlir::Value x);
  mlir::Value sigmoid(mlir::Value x);
  /// A function of the C library (its double name), element by element.
  mlir::Value library(llvm::StringRef name, mlir::ValueRange arguments);

  /// `value` in every lane of `type`, a float or integer type or vector.
  mlir::Value constant(mlir::Type type, double value);
  mlir::Value integer(mlir::Type type, int64_t value);

private:
  mlir::Value roughPower(mlir::Value x);
  mlir::Value reciprocal(mlir::Value x);
  mlir::Value lanewise(mlir::func::FuncOp callee, mlir::ValueRange arguments,
                       mlir::VectorType type);
  mlir::Value lanewise(mlir::Value x,
                       llvm::function_ref<mlir::Value(mlir::Value)> emit);
  mlir::Value polynomial(mlir::Value x, llvm::ArrayRef<double> coefficients);
  mlir::Value fma(mlir::Value x, mlir::Value y, mlir::Value z);
  mlir::Value bitcast(mlir::Value x, mlir::Type element);
  /// x = n ln 2 + r.
  struct Reduced {
    mlir::Value shifted; // n in the low bits of its bits
    mlir::Value n, r;
    bool isNormal = false; // 2^n e^r is, or NaN
  };
  Reduced reduceExponent(mlir::Value x);
  /// 2^n for n in [-126, 127], from the shifted form.
  mlir::Value power(mlir::Value shifted);
  /// y 2^n, rounded once.
  mlir::Value scale(mlir::Value y, const Reduced &by);
  mlir::Value expOf(const Reduced &reduced);
  /// a / d, correctly rounded, for d in [1, 2^100] or NaN, and a in [0, d].
  mlir::Value ratio(mlir::Value a, mlir::Value d);

  mlir::ImplicitLocOpBuilder &b;
  Machine machine;
};

/// f16 and bf16 are only kept in memory: each op computes in f32 and rounds.
bool isNarrow(mlir::Type element);
/// What sums of elements are accumulated in.
mlir::Type accumulatorType(mlir::Type element);

/// `type` with another element.
mlir::Type withElement(mlir::Type type, mlir::Type element);

/// A float as a float of another width, to nearest even. Every narrowing to
/// f16 and bf16 goes through here: code for processors that have no such
/// instruction would call the compiler's support library, which plans do not
/// link.
mlir::Value convertFloat(mlir::ImplicitLocOpBuilder &b, const Machine &machine,
                         mlir::Value x, mlir::Type element);

} // namespace pipec::fusion
