//===- Activation.cpp - importers of activation functions -----------------===//
#include "compiler/onnx/ops/Ops.h"

#include <cmath>

using namespace mlir;

namespace pipec::onnx {

static Val sigmoid(NodeContext &c, const Val &x) {
  return c.e.unary<nn::SigmoidOp>(x);
}

/// log(1 + e^x) without overflow: max(x, 0) + log1p(e^-|x|)
static Val softplus(NodeContext &c, const Val &x) {
  Emitter &e = c.e;
  const Val decay = e.unary<nn::ExpOp>(e.neg(e.unary<nn::AbsOp>(x)));
  return e.add(e.unary<nn::ReluOp>(x), e.unary<nn::Log1pOp>(decay));
}

/// scale * (e^x - 1) where x <= 0, with the exponential of min(x, 0) only: the
/// other branch must not overflow in the gradient.
static Val expm1Below(NodeContext &c, const Val &x, double scale) {
  Emitter &e = c.e;
  const Val low = e.min(x, e.splatLike(x, 0));
  return e.mul(e.add(e.unary<nn::ExpOp>(low), -1), scale);
}

/// x where x > 0 (or >= 0), else `below`.
static Val aboveZero(NodeContext &c, const Val &x, const Val &below) {
  return c.e.select(c.e.compare("gt", x, 0), x, below);
}

void importLeakyRelu(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(aboveZero(c, x, c.e.mul(x, c.floatAttr("alpha", 0.01f))));
}

/// The slope broadcasts to x, never the other way round.
void importPRelu(NodeContext &c) {
  const Val &x = c.in(0);
  const Val slope = c.e.broadcast(c.in(1), x.getShape());
  c.out(c.e.select(c.e.compare("gt", x, 0), x, c.e.mul(x, slope)));
}

void importElu(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(aboveZero(c, x, expm1Below(c, x, c.floatAttr("alpha", 1))));
}

void importSelu(NodeContext &c) {
  const Val &x = c.floatIn(0);
  const double alpha = c.floatAttr("alpha", 1.67326319217681884765625f);
  const double gamma = c.floatAttr("gamma", 1.05070102214813232421875f);
  c.out(c.e.mul(aboveZero(c, x, expm1Below(c, x, alpha)), gamma));
}

/// max(0, x) + min(0, alpha * (e^(x / alpha) - 1))
void importCelu(NodeContext &c) {
  const Val &x = c.floatIn(0);
  const double alpha = c.floatAttr("alpha", 1);
  const Val scaled = c.e.mul(x, 1 / alpha);
  c.out(aboveZero(c, x, expm1Below(c, scaled, alpha)));
}

void importThresholdedRelu(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.select(c.e.compare("gt", x, c.floatAttr("alpha", 1)), x,
                   c.e.splatLike(x, 0)));
}

/// min(max(a x + b, 0), 1)
static Val hardSigmoid(NodeContext &c, const Val &x, double a, double b) {
  Emitter &e = c.e;
  const Val line = e.add(e.mul(x, a), b);
  return e.min(e.max(line, e.splatLike(x, 0)), e.splatLike(x, 1));
}
void importHardSigmoid(NodeContext &c) {
  c.out(hardSigmoid(c, c.floatIn(0), c.floatAttr("alpha", 0.2f),
                    c.floatAttr("beta", 0.5f)));
}
void importHardSwish(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.mul(x, hardSigmoid(c, x, 1.0 / 6, 0.5)));
}

void importSoftplus(NodeContext &c) { c.out(softplus(c, c.floatIn(0))); }

/// x / (1 + |x|)
void importSoftsign(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.div(x, c.e.add(c.e.unary<nn::AbsOp>(x), 1)));
}

/// x * sigmoid(alpha x)
void importSwish(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.mul(x, sigmoid(c, c.e.mul(x, c.floatAttr("alpha", 1)))));
}

/// Swish of the gate times the other operand.
void importSwiGLU(NodeContext &c) {
  const Val &gate = c.floatIn(0);
  c.out(
      c.e.mul(c.e.mul(gate, sigmoid(c, c.e.mul(gate, c.floatAttr("alpha", 1)))),
              c.in(1)));
}

/// x * tanh(softplus(x))
void importMish(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.mul(x, c.e.unary<nn::TanhOp>(softplus(c, x))));
}

/// x / 2 * (1 + erf(x / sqrt 2)), or by tanh.
void importGelu(NodeContext &c) {
  const Val &x = c.floatIn(0);
  Emitter &e = c.e;
  Val inner;
  if (c.stringAttr("approximate", "none") == "tanh") {
    const Val cube = e.mul(e.mul(x, x), x);
    inner = e.unary<nn::TanhOp>(
        e.mul(e.add(x, e.mul(cube, 0.044715)), std::sqrt(2 / M_PI)));
  } else {
    inner = e.unary<nn::ErfOp>(e.mul(x, 1 / std::sqrt(2.0)));
  }
  c.out(e.mul(e.mul(x, 0.5), e.add(inner, 1)));
}

/// x - bias beyond lambda, x + bias below -lambda, else 0.
void importShrink(NodeContext &c) {
  const Val &x = c.in(0);
  Emitter &e = c.e;
  const double bias = c.floatAttr("bias", 0),
               lambda = c.floatAttr("lambd", 0.5);
  const Val zero = e.splatLike(x, 0);
  const Val low = e.select(e.compare("lt", x, -lambda), e.add(x, bias), zero);
  c.out(e.select(e.compare("gt", x, lambda), e.add(x, -bias), low));
}

//===----------------------------------------------------------------------===//
// Softmax and its relatives
//===----------------------------------------------------------------------===//

/// Applies `f` over the last dimension of x with `axis` moved there.
static Val alongAxis(NodeContext &c, const Val &x, int64_t axis,
                     llvm::function_ref<Val(const Val &)> f) {
  if (axis == x.getRank() - 1)
    return f(x);
  SmallVector<int64_t> swap(
      llvm::to_vector(llvm::seq<int64_t>(0, x.getRank())));
  std::swap(swap[axis], swap.back());
  return c.e.transpose(f(c.e.transpose(x, swap)), swap);
}

/// Before opset 13 the dimensions from `axis` on count as one.
static Val softmaxLike(NodeContext &c, llvm::function_ref<Val(const Val &)> f) {
  const Val &x = c.floatIn(0);
  if (x.getRank() == 0)
    c.fail("its operand is a scalar");
  const bool flattens = c.opset < 13;
  const int64_t axis =
      c.axis(c.intAttr("axis", flattens ? 1 : -1), x.getRank());
  if (!flattens)
    return alongAxis(c, x, axis, f);
  int64_t rows = 1, columns = 1;
  for (int64_t i = 0; i < x.getRank(); ++i)
    (i < axis ? rows : columns) *= x.dim(i);
  return c.e.reshape(f(c.e.reshape(x, {rows, columns})), x.getShape());
}

/// x - max - log(sum(e^(x - max))) over the last dimension
static Val logSoftmax(NodeContext &c, const Val &x) {
  Emitter &e = c.e;
  const int64_t last = x.getRank() - 1;
  // The shift cancels out; it needs no gradient.
  const Val top = e.unary<nn::StopGradientOp>(e.reduce("max", x, {last}));
  const Val shifted = e.sub(x, top);
  const Val sum = e.reduce("sum", e.unary<nn::ExpOp>(shifted), {last});
  return e.sub(shifted, e.unary<nn::LogOp>(sum));
}

void importSoftmax(NodeContext &c) {
  c.out(softmaxLike(c, [&](const Val &x) { return c.e.softmax(x); }));
}

void importLogSoftmax(NodeContext &c) {
  c.out(softmaxLike(c, [&](const Val &x) { return logSoftmax(c, x); }));
}

/// 1 at the first maximum of each row, else 0.
void importHardmax(NodeContext &c) {
  c.out(softmaxLike(c, [&](const Val &x) {
    Emitter &e = c.e;
    const int64_t last = x.getRank() - 1;
    const Val isTop = e.compare("eq", x, e.reduce("max", x, {last}));
    const Val hits = e.cast(isTop, x.getElementType());
    const Val rank = e.cumsum(hits, last, false, false);
    const Val first = e.compare("eq", rank, 1);
    return e.mul(hits, e.cast(first, x.getElementType()));
  }));
}

} // namespace pipec::onnx
