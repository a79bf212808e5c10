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

} // namespace pipec::onnx
