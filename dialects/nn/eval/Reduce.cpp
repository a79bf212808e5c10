//===- Reduce.cpp - evaluation of reduce and softmax ----------------------===//
#include "dialects/nn/eval/Kernels.h"
#include <cmath>

using namespace mlir;

namespace pipec::nn::eval {

/// Visits, for each element of `kept` (x with the reduced axes of size 1), the
/// elements of x that reduce into it.
template <typename Start, typename Step>
static void reduceLines(const Literal &x, ArrayRef<int64_t> axes, Start start,
                        Step step) {
  SmallVector<int64_t> outer(x.getShape()), inner(x.getRank(), 1);
  for (int64_t axis : axes) {
    inner[axis] = outer[axis];
    outer[axis] = 1;
  }
  const Literal lines =
      x.view(x.getType().clone(outer), SmallVector<int64_t>(x.getStrides()),
             x.getOffset());
  forEachPosition(outer, {&lines}, [&](ArrayRef<int64_t> first) {
    start();
    const Literal line = x.view(x.getType().clone(inner),
                                SmallVector<int64_t>(x.getStrides()), first[0]);
    forEachPosition(inner, {&line}, [&](ArrayRef<int64_t> at) { step(at[0]); });
  });
}

static double startOf(StringRef kind) {
  if (kind == "max")
    return -INFINITY;
  if (kind == "min")
    return INFINITY;
  return kind == "prod" ? 1 : 0;
}

static double combine(StringRef kind, double a, double b) {
  if (kind == "sum")
    return a + b;
  if (kind == "prod")
    return a * b;
  if (std::isnan(a) || std::isnan(b))
    return NAN;
  return kind == "max" ? std::max(a, b) : std::min(a, b);
}

/// The value an integer reduction starts from; min and max start at the limits.
static int64_t startOfInts(StringRef kind, Type element) {
  if (kind == "sum" || kind == "prod")
    return kind == "prod";
  const unsigned width = element.getIntOrFloatBitWidth();
  const bool isUnsigned = element.isUnsignedInteger() || width == 1;
  if (kind == "max")
    return isUnsigned ? 0
                      : llvm::APInt::getSignedMinValue(width).getSExtValue();
  return static_cast<int64_t>(
      isUnsigned ? llvm::APInt::getMaxValue(width).getZExtValue()
                 : llvm::APInt::getSignedMaxValue(width).getZExtValue());
}

static int64_t combineInts(StringRef kind, int64_t a, int64_t b,
                           bool isUnsigned) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  if (kind == "sum")
    return static_cast<int64_t>(ua + ub);
  if (kind == "prod")
    return static_cast<int64_t>(ua * ub);
  const bool less = isUnsigned ? ua < ub : a < b;
  return (kind == "max") == less ? b : a;
}

static Literal reduce(ReduceOp op, const Context &c) {
  const RankedTensorType type = resultType(op);
  const StringRef kind = op.getKind();
  const Literal &x = c[0];
  if (x.isFloat()) {
    std::vector<double> out;
    reduceLines(
        x, op.getAxes(), [&] { out.push_back(startOf(kind)); },
        [&](int64_t at) {
          out.back() = combine(kind, out.back(), x.doubleAt(at));
        });
    return c.floats(type, std::move(out));
  }
  const Type element = x.getElementType();
  std::vector<int64_t> out;
  reduceLines(
      x, op.getAxes(), [&] { out.push_back(startOfInts(kind, element)); },
      [&](int64_t at) {
        out.back() = combineInts(kind, out.back(), x.intAt(at),
                                 element.isUnsignedInteger());
      });
  for (int64_t &v : out)
    v = wrapTo(element, v);
  return Literal(type, std::move(out));
}

static Literal softmax(SoftmaxOp op, const Context &c) {
  const Literal &x = c[0];
  std::vector<double> values = x.doubles();
  const int64_t n = x.getShape().back();
  for (size_t row = 0; n > 0 && row < values.size(); row += n) {
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; ++i)
      largest = combine("max", largest, values[row + i]);
    for (int64_t i = 0; i < n; ++i)
      sum += values[row + i] = std::exp(values[row + i] - largest);
    for (int64_t i = 0; i < n; ++i)
      values[row + i] /= sum;
  }
  return c.floats(resultType(op), std::move(values));
}

FailureOr<Results> reduction(Operation *op, const Context &c) {
  if (auto reduceOp = dyn_cast<ReduceOp>(op))
    return Results{reduce(reduceOp, c)};
  if (auto softmaxOp = dyn_cast<SoftmaxOp>(op))
    return Results{softmax(softmaxOp, c)};
  return Results{};
}

} // namespace pipec::nn::eval
