//===- Random.cpp - importers of random operators -------------------------===//
//
// Random numbers are a function of the seed, the step, the microbatch, the node
// and the element, and nothing else: every stage, schedule and recomputation
// sees the same ones, and no mask is ever kept.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <cmath>

using namespace mlir;

namespace pipec::onnx {

Val Emitter::counter(StringRef name) {
  auto type = RankedTensorType::get({}, builder.getI64Type());
  return Val(nn::CounterOp::create(builder, type, name).getResult());
}

Val Emitter::randomBits(ArrayRef<int64_t> shape) {
  Val key = counter("seed");
  for (const Val &part : {counter("step"), counter("microbatch"),
                          Val(nn::Literal::scalarInt(context, streams++))})
    key = binary<nn::HashOp>(part, key);
  auto type = RankedTensorType::get(shape, builder.getI64Type());
  return apply({key}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    Value index;
    int64_t stride = 1;
    for (int64_t d = type.getRank(); d-- > 0; stride *= shape[d]) {
      if (shape[d] == 1)
        continue;
      Value part = nn::iota(b, type, d);
      if (stride != 1)
        part = nn::mul(b, part, nn::splat(b, type, double(stride)));
      index = index ? nn::add(b, index, part) : part;
    }
    if (!index)
      index = nn::splat(b, type, 0);
    return nn::HashOp::create(b, index, nn::broadcastTo(b, v[0], shape))
        .getResult();
  });
}

/// x where it is kept, times 1 / (1 - ratio), else 0. Outside training (a
/// negative step) and without training_mode the identity.
void importDropout(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.in(0);
  const Type flag = IntegerType::get(e.getContext(), 1);
  const bool trains = c.has(2) && c.scalarInt(2, "training_mode") != 0;
  const double ratio =
      c.has(1) ? c.scalar(1, "ratio") : c.floatAttr("ratio", 0.5);
  if (!(ratio >= 0 && ratio <= 1))
    c.fail("its ratio " + std::to_string(ratio) + " is not between 0 and 1");
  if (!trains || ratio == 0 || c.options.forwardOnly) {
    c.out(0, x);
    c.out(1, e.splat(withElement(x.type, flag), 1));
    return;
  }
  // Bits are uniform over all i64: those below the threshold keep.
  const double threshold = std::ldexp(1 - ratio, 64) - 0x1p63;
  const Val drawn = e.compare("lt", e.randomBits(x.getShape()), threshold);
  const Val idle = e.compare("lt", e.counter("step"), 0);
  const Val kept = e.binary<nn::OrOp>(drawn, idle);
  const Val one = e.scalar(x.getElementType(), 1);
  const Val scale = e.select(
      idle, one, e.scalar(x.getElementType(), ratio < 1 ? 1 / (1 - ratio) : 0));
  c.out(0, e.select(kept, e.mul(x, scale), e.splatLike(x, 0)));
  c.out(1, kept);
}

//===----------------------------------------------------------------------===//
// Numbers of a distribution
//===----------------------------------------------------------------------===//

/// Uniform in [0, 1), of an element type that has the numbers between: f32 or
/// f64.
static Val uniform(NodeContext &c, ArrayRef<int64_t> shape, Type element) {
  if (c.options.forwardOnly && !c.options.evaluates)
    c.fail("its numbers are random, and inference has no seed",
           "compile for training, or make its output an input of the model");
  Emitter &e = c.e;
  const Val bits = e.cast(e.randomBits(shape), element);
  const Val part = e.add(e.mul(bits, 0x1p-64), 0.5);
  // The largest numbers round up to 1.
  return e.min(part,
               e.splatLike(part, element.isF64() ? 1 - 0x1p-53 : 1 - 0x1p-24));
}

/// Of f32, or f64 where the result is.
static Type computeType(Emitter &e, Type element) {
  return element.isF64() ? element : Type(Float32Type::get(e.getContext()));
}

static void outputNumbers(NodeContext &c, const Val &v, Type element) {
  c.out(c.e.cast(v, element));
}

/// low + u (high - low)
static void uniformBetween(NodeContext &c, ArrayRef<int64_t> shape,
                           Type element) {
  Emitter &e = c.e;
  const double low = c.floatAttr("low", 0), high = c.floatAttr("high", 1);
  const Val u = uniform(c, shape, computeType(e, element));
  outputNumbers(c, e.add(e.mul(u, high - low), low), element);
}

/// Box and Muller's: the radius of one uniform number, the angle of another.
static void normal(NodeContext &c, ArrayRef<int64_t> shape, Type element) {
  Emitter &e = c.e;
  const Type wide = computeType(e, element);
  const Val u = uniform(c, shape, wide), angle = uniform(c, shape, wide);
  const Val log = e.unary<nn::LogOp>(e.sub(e.splatLike(u, 1), u));
  const Val radius = e.unary<nn::SqrtOp>(e.mul(log, -2));
  const Val z = e.mul(radius, e.unary<nn::CosOp>(e.mul(angle, 2 * M_PI)));
  outputNumbers(
      c, e.add(e.mul(z, c.floatAttr("scale", 1)), c.floatAttr("mean", 0)),
      element);
}

static Type floatType(NodeContext &c, Type otherwise) {
  const Type element = c.attribute("dtype")
                           ? c.typeAttr("dtype", ElementType::Float)
                           : otherwise;
  if (!nn::holdsFloats(element))
    c.fail("its numbers are not floating-point");
  return element;
}

static std::vector<int64_t> shapeAttr(NodeContext &c) {
  const auto shape = c.intsAttr("shape");
  if (!shape)
    c.fail("it has no attribute 'shape'");
  int64_t count = 1;
  for (const int64_t size : *shape)
    if (size < 0 || __builtin_mul_overflow(count, size, &count) ||
        count > (int64_t(1) << 40))
      c.fail("its shape " + shapeText(*shape) + " is impossible");
  return *shape;
}

void importRandomUniform(NodeContext &c) {
  uniformBetween(c, shapeAttr(c),
                 floatType(c, Float32Type::get(c.e.getContext())));
}

void importRandomUniformLike(NodeContext &c) {
  const Val &x = c.in(0);
  uniformBetween(c, x.getShape(), floatType(c, x.getElementType()));
}

void importRandomNormal(NodeContext &c) {
  normal(c, shapeAttr(c), floatType(c, Float32Type::get(c.e.getContext())));
}

void importRandomNormalLike(NodeContext &c) {
  const Val &x = c.in(0);
  normal(c, x.getShape(), floatType(c, x.getElementType()));
}

/// One with the probability that the input says.
void importBernoulli(NodeContext &c) {
  Emitter &e = c.e;
  const Val &p = c.floatIn(0);
  const Type wide = computeType(e, p.getElementType());
  const Val one =
      e.compare("lt", uniform(c, p.getShape(), wide), e.cast(p, wide));
  c.out(e.cast(one, c.attribute("dtype")
                        ? c.typeAttr("dtype", ElementType::Float)
                        : p.getElementType()));
}

} // namespace pipec::onnx
