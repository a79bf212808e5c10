//===- Reduce.cpp - importers of reductions -------------------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <functional>

using namespace mlir;

namespace pipec::onnx {

using Reduction =
    llvm::function_ref<Val(Emitter &, const Val &, ArrayRef<int64_t>)>;

/// Axes from input 1 (opset 13 or 18 on) or an attribute; none means all, or
/// nothing with noop_with_empty_axes.
static void reduceWith(NodeContext &c, Reduction reduction) {
  const Val &x = c.in(0);
  const auto given = c.intsInputOrAttr(1, "axes");
  std::vector<int64_t> axes;
  if (given && !given->empty())
    axes = c.axes(*given, x.getRank());
  else if (c.intAttr("noop_with_empty_axes", 0) == 0)
    for (int64_t i = 0; i < x.getRank(); ++i)
      axes.push_back(i);
  const Val y = reduction(c.e, x, axes);
  if (c.intAttr("keepdims", 1) != 0) {
    c.out(y);
    return;
  }
  SmallVector<int64_t> shape;
  for (int64_t i = 0; i < x.getRank(); ++i)
    if (!llvm::is_contained(axes, i))
      shape.push_back(x.dim(i));
  c.out(c.e.reshape(y, shape));
}

#define REDUCE(NAME, EXPRESSION)                                               \
  void import##NAME(NodeContext &c) {                                          \
    reduceWith(c, [&](Emitter &e, const Val &x, ArrayRef<int64_t> axes) {      \
      return EXPRESSION;                                                       \
    });                                                                        \
  }

/// max and min of booleans are or and and.
static Val extreme(Emitter &e, const char *kind, const Val &x,
                   ArrayRef<int64_t> axes) {
  if (!x.getElementType().isInteger(1))
    return e.reduce(kind, x, axes);
  // An empty range has no true element, and no false one.
  const Type i32 = IntegerType::get(e.getContext(), 32);
  const bool any = llvm::StringRef(kind) == "max";
  return e.compare("ne", e.reduce(any ? "sum" : "prod", e.cast(x, i32), axes),
                   0);
}

/// log(sum(e^x)) without overflow.
static Val logSumExp(Emitter &e, const Val &x, ArrayRef<int64_t> axes) {
  Val top = e.unary<nn::StopGradientOp>(e.reduce("max", x, axes));
  // A range of -inf alone must give -inf, not NaN.
  const Val unbounded = e.apply({top}, [](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::IsInfOp::create(b, v[0], true, true).getResult();
  });
  top = e.select(unbounded, e.splatLike(top, 0), top);
  const Val sum = e.reduce("sum", e.unary<nn::ExpOp>(e.sub(x, top)), axes);
  return e.add(e.unary<nn::LogOp>(sum), top);
}

static Val squares(Emitter &e, const Val &x, ArrayRef<int64_t> axes) {
  return e.reduce("sum", e.mul(x, x), axes);
}

/// The square root of a sum of squares; the gradient at 0 is 0, as in PyTorch.
static Val norm(Emitter &e, const Val &x, ArrayRef<int64_t> axes) {
  return e.unary<nn::SqrtOp>(squares(e, x, axes));
}

REDUCE(ReduceSum, e.reduce("sum", x, axes))
REDUCE(ReduceProd, e.reduce("prod", x, axes))
REDUCE(ReduceMax, extreme(e, "max", x, axes))
REDUCE(ReduceMin, extreme(e, "min", x, axes))
REDUCE(ReduceMean, e.mean(x, axes))
REDUCE(ReduceL1, e.reduce("sum", e.unary<nn::AbsOp>(x), axes))
REDUCE(ReduceL2, norm(e, x, axes))
REDUCE(ReduceSumSquare, squares(e, x, axes))
REDUCE(ReduceLogSum, e.unary<nn::LogOp>(e.reduce("sum", x, axes)))
REDUCE(ReduceLogSumExp, logSumExp(e, x, axes))

void importCumSum(NodeContext &c) {
  const Val &x = c.in(0);
  c.out(c.e.cumsum(x, c.axis(c.scalarInt(1, "axis"), x.getRank()),
                   c.intAttr("exclusive", 0) != 0,
                   c.intAttr("reverse", 0) != 0));
}

//===----------------------------------------------------------------------===//
// ArgMax and ArgMin
//===----------------------------------------------------------------------===//

/// The first (or last) index at which x is extreme: the smallest (largest) of
/// the indices there. A NaN counts as extreme.
static void argExtreme(NodeContext &c, const char *kind) {
  Emitter &e = c.e;
  const Val &x = c.in(0);
  const int64_t axis = c.axis(c.intAttr("axis", 0), x.getRank());
  const bool last = c.intAttr("select_last_index", 0) != 0;
  const int64_t n = x.dim(axis);
  const Type i64 = e.i64();
  const Val index = e.iota(withElement(x.type, i64), axis);
  Val isTop = e.compare("eq", x, e.reduce(kind, x, {axis}));
  if (x.isFloat()) {
    const Val isNan = e.apply({x}, [](nn::NNBuilder &b, ArrayRef<Value> v) {
      return nn::IsNanOp::create(b, v[0]).getResult();
    });
    isTop = e.binary<nn::OrOp>(isTop, isNan);
  }
  const Val candidates = e.select(
      isTop, index, e.splatLike(index, last ? -1 : static_cast<double>(n)));
  Val y = e.reduce(last ? "max" : "min", candidates, {axis});
  if (c.intAttr("keepdims", 1) == 0) {
    SmallVector<int64_t> shape(x.getShape());
    shape.erase(shape.begin() + axis);
    y = e.reshape(y, shape);
  }
  c.out(y);
}
void importArgMax(NodeContext &c) { argExtreme(c, "max"); }
void importArgMin(NodeContext &c) { argExtreme(c, "min"); }

} // namespace pipec::onnx
