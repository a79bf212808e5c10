//===- Quantize.cpp - importers of linear quantization --------------------===//
#include "compiler/onnx/ops/Ops.h"
#include "compiler/onnx/ops/Window.h"

#include <cmath>

using namespace mlir;

namespace pipec::onnx {

Val matmulLikeNumpy(Emitter &e, Val x, Val y);

/// A scale or zero point, for the whole tensor, along an axis, or by blocks,
/// broadcast to the shape of x.
static Val spread(NodeContext &c, const Val &p, const Val &x) {
  Emitter &e = c.e;
  if (p.type.getNumElements() == 1)
    return e.broadcast(e.reshape(p, {}), x.getShape());
  const int64_t axis = c.axis(c.intAttr("axis", 1), x.getRank());
  const int64_t block = c.intAttr("block_size", 0);
  if (p.getRank() == 1 && p.dim(0) == x.dim(axis)) {
    SmallVector<int64_t> shape(x.getRank(), 1);
    shape[axis] = p.dim(0);
    return e.broadcast(e.reshape(p, shape), x.getShape());
  }
  int64_t covered = 0;
  if (block < 1 || p.getRank() != x.getRank() ||
      __builtin_mul_overflow(p.dim(axis), block, &covered) ||
      covered < x.dim(axis))
    c.fail("its scale " + shapeText(p.getShape()) + " does not fit its input " +
           shapeText(x.getShape()));
  SmallVector<int64_t> thin(p.getShape()), wide, joined(p.getShape());
  thin.insert(thin.begin() + axis + 1, 1);
  wide = thin;
  wide[axis + 1] = block;
  joined[axis] *= block;
  const Val all = e.reshape(e.broadcast(e.reshape(p, thin), wide), joined);
  return e.broadcast(e.sliceAxis(all, axis, 0, x.dim(axis)), x.getShape());
}

static std::pair<double, double> limits(Type element) {
  const unsigned width = element.getIntOrFloatBitWidth();
  const double top = std::ldexp(1.0, static_cast<int>(width));
  return element.isUnsignedInteger() ? std::pair(0.0, top - 1)
                                     : std::pair(-top / 2, top / 2 - 1);
}

/// round(x / scale) + zero, saturated.
static Val quantize(NodeContext &c, const Val &x, const Val &scale,
                    const Val &zero, Type element) {
  Emitter &e = c.e;
  const Type f32 = Float32Type::get(e.getContext());
  Val y = e.unary<nn::RoundOp>(e.div(e.cast(x, f32), e.cast(scale, f32)));
  if (zero)
    y = e.add(y, e.cast(zero, f32));
  const auto [low, high] = limits(element);
  y = e.min(e.max(y, e.splatLike(y, low)), e.splatLike(y, high));
  return e.cast(y, element);
}

void importQuantizeLinear(NodeContext &c) {
  const Val &x = c.in(0);
  Type element = IntegerType::get(c.e.getContext(), 8,
                                  IntegerType::SignednessSemantics::Unsigned);
  if (c.has(2))
    element = c.in(2).getElementType();
  else if (c.intAttr("output_dtype", 0) != 0)
    element = c.typeAttr("output_dtype", ElementType::Uint8);
  if (nn::holdsFloats(element))
    c.fail("it quantizes to a floating-point type");
  const Val scale = spread(c, c.in(1), x);
  c.out(
      quantize(c, x, scale, c.has(2) ? spread(c, c.in(2), x) : Val(), element));
}

/// (x - zero) * scale
static Val dequantize(NodeContext &c, const Val &x, const Val &scale,
                      const Val &zero) {
  Emitter &e = c.e;
  const Type f32 = Float32Type::get(e.getContext());
  Val y = e.cast(x, f32);
  if (zero)
    y = e.sub(y, e.cast(zero, f32));
  return e.cast(e.mul(y, e.cast(scale, f32)), scale.getElementType());
}

void importDequantizeLinear(NodeContext &c) {
  const Val &x = c.in(0);
  c.out(dequantize(c, x, spread(c, c.in(1), x),
                   c.has(2) ? spread(c, c.in(2), x) : Val()));
}

/// Scale and zero point from the range of the data, which always covers 0.
void importDynamicQuantizeLinear(NodeContext &c) {
  Emitter &e = c.e;
  const Val &x = c.floatIn(0);
  const auto all = llvm::to_vector(llvm::seq<int64_t>(0, x.getRank()));
  const auto extreme = [&](const char *kind) {
    return e.reshape(e.reduce(kind, x, all), {});
  };
  const Val zero = e.scalar(x.getElementType(), 0);
  const Val low = e.min(extreme("min"), zero),
            high = e.max(extreme("max"), zero);
  const Val scale = e.mul(e.sub(high, low), 1.0 / 255);
  const Type u8 = IntegerType::get(e.getContext(), 8,
                                   IntegerType::SignednessSemantics::Unsigned);
  Val point = e.unary<nn::RoundOp>(e.div(e.neg(low), scale));
  point = e.cast(e.min(e.max(point, zero), e.splatLike(zero, 255)), u8);
  c.out(0, quantize(c, x, e.broadcast(scale, x.getShape()),
                    e.broadcast(point, x.getShape()), u8));
  c.out(1, scale);
  c.out(2, point);
}

/// Zero points of a matmul operand: one, or one a row (left) or column (right).
static Val withoutZero(NodeContext &c, size_t operand, size_t point,
                       bool left) {
  Emitter &e = c.e;
  const Type i32 = IntegerType::get(e.getContext(), 32);
  const Val x = e.cast(c.in(operand), i32);
  if (!c.has(point))
    return x;
  Val zero = e.cast(c.in(point), i32);
  if (left && zero.getRank() == 1 && zero.dim(0) > 1)
    zero = e.reshape(zero, {zero.dim(0), 1});
  return e.sub(x, zero);
}

void importMatMulInteger(NodeContext &c) {
  c.out(matmulLikeNumpy(c.e, withoutZero(c, 0, 2, true),
                        withoutZero(c, 1, 3, false)));
}

/// A product of quantized operands, scaled by operands 1, 4 and 6, with the
/// zero point of operand 7.
static Val requantize(NodeContext &c, const Val &product, const Val &scale) {
  Emitter &e = c.e;
  const Type f32 = Float32Type::get(e.getContext());
  const Val scaled = e.mul(e.cast(product, f32), scale);
  const Val &zero = c.in(7);
  return quantize(c, scaled, e.splatLike(scaled, 1),
                  e.broadcast(zero, scaled.getShape()), zero.getElementType());
}

void importQLinearMatMul(NodeContext &c) {
  Emitter &e = c.e;
  const Type f32 = Float32Type::get(e.getContext());
  const Val product = matmulLikeNumpy(e, withoutZero(c, 0, 2, true),
                                      withoutZero(c, 3, 5, false));
  const Val scale = e.div(e.mul(e.cast(c.in(1), f32), e.cast(c.in(4), f32)),
                          e.cast(c.in(6), f32));
  c.out(requantize(c, product, scale));
}

/// One number, or one a channel of the result: as it broadcasts over images, or
/// over the weight.
static Val overChannels(NodeContext &c, const Val &v, const Val &like,
                        int64_t axis) {
  SmallVector<int64_t> shape(like.getRank(), 1);
  if (v.type.getNumElements() != 1)
    shape[axis] = v.type.getNumElements();
  return c.e.reshape(v, shape);
}

/// Integers convolve exactly in f64.
static Val convolveIntegers(NodeContext &c, size_t x, size_t zeroX, size_t w,
                            size_t zeroW) {
  Emitter &e = c.e;
  const Type f64 = Float64Type::get(e.getContext());
  const auto wide = [&](size_t operand, size_t zero) {
    const Val v = e.cast(c.in(operand), f64);
    if (!c.has(zero))
      return v;
    return e.sub(v, overChannels(c, e.cast(c.in(zero), f64), v, 0));
  };
  image(c, x);
  return convolve(c, wide(x, zeroX), wide(w, zeroW));
}

void importConvInteger(NodeContext &c) {
  const Val y = convolveIntegers(c, 0, 2, 1, 3);
  c.out(c.e.cast(y, IntegerType::get(c.e.getContext(), 32)));
}

void importQLinearConv(NodeContext &c) {
  Emitter &e = c.e;
  const Type f32 = Float32Type::get(e.getContext());
  Val y = convolveIntegers(c, 0, 2, 3, 5);
  if (c.has(8))
    y = addChannelBias(c, y, e.cast(c.in(8), y.getElementType()));
  const Val both = e.div(e.mul(e.cast(c.in(1), f32), e.cast(c.in(4), f32)),
                         e.cast(c.in(6), f32));
  c.out(requantize(c, y, overChannels(c, both, y, 1)));
}

} // namespace pipec::onnx
